"""Conversations on every route that takes them, against the tokens that `transformers` makes of them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from transformers import AutoTokenizer

from cenote import LLM
from cenote.config import MachineSettings, ModelSettings, ServerSettings
from cenote.registry import Registry
from cenote.server import app
from support.fixtures import Tiny, TinySentence

from .conftest import Kind

TEMPLATE = (
    "{{ cls_token }}{% for message in messages %}{{ message.role }}: {{ message['content'] }}{{ sep_token }}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}assistant:{% endif %}"
)
OTHER = "{% for message in messages %}{{ message.content }} {% endfor %}{{ ending | default('') }}"
PAIRS = (
    "{{ messages[0].content }} {{ instruction | default('is about') }} "
    "{{ (messages | selectattr('role', 'eq', 'document') | first).content }}"
)
ONE = [{"role": "user", "content": "What is a cenote?"}]
TWO = [*ONE, {"role": "assistant", "content": "A well of the ice age: "}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "a cenote?"}]}]
ROUTES = ["/v1/embeddings", "/classify", "/pooling"]


@pytest.fixture(scope="module")
def embedding_folder(tiny_sentence: TinySentence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedder with a default prompt, whose tokenizer has a chat template."""
    folder = tiny_sentence(normalize=True, prompts={"query": "query: "}, default_prompt_name="query")
    return templated(folder, tmp_path_factory.mktemp("chat") / "embedder")


@pytest.fixture(scope="module")
def classifying_folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose tokenizer has a chat template."""
    return templated(tiny("bert", head="sequence_classification"), tmp_path_factory.mktemp("chat") / "classifier")


def templated(folder: Path, to: Path) -> Path:
    """A copy of a folder with the template."""
    shutil.copytree(folder, to)
    (to / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return to


@asynccontextmanager
async def asking(folder: Path, server: ServerSettings | None = None, **model: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Asks an application without a connection between."""
    with Registry(MachineSettings(device="cpu", num_workers=1)) as registry:
        registry.open(ModelSettings(model=str(folder), **model), ["chat"])
        transport = httpx.ASGITransport(app.build(registry, server or ServerSettings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


def reference_ids(folder: Path, messages: list[dict[str, Any]], **more: Any) -> list[int]:
    """What `transformers` makes of a conversation whose contents are texts."""
    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False, **more)
    ids: list[int] = AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]
    return ids


def arrays_of(response: httpx.Response) -> np.ndarray[Any, Any]:
    assert response.status_code == 200, response.text
    items = response.json()["data"]
    return np.array([next(item[key] for key in ("embedding", "probs", "data") if key in item) for item in items])


@pytest.mark.parametrize("path", ROUTES)
async def test_conversations_are_read_as_their_tokens(
    embedding_folder: Path, classifying_folder: Path, path: str
) -> None:
    folder = classifying_folder if path == "/classify" else embedding_folder
    ids = [reference_ids(folder, one) for one in (ONE, TWO)]
    async with asking(folder) as client:
        # A prompt would go before a text, and neither before a conversation nor before ids.
        expected = arrays_of(await client.post(path, json={"input": ids}))
        bodies: list[dict[str, Any]] = [{"messages": [ONE, TWO]}, {"input": [ONE, TWO]}]
        for body in bodies:
            np.testing.assert_allclose(arrays_of(await client.post(path, json=body)), expected, atol=2e-6)
        for body in ({"messages": ONE}, {"input": ONE}):
            response = await client.post(path, json=body)
            np.testing.assert_allclose(arrays_of(response), expected[:1], atol=2e-6)
            assert response.json()["usage"]["prompt_tokens"] == len(ids[0])


async def test_ends_of_a_conversation(embedding_folder: Path) -> None:
    async with asking(embedding_folder) as client:

        async def tokens(**body: Any) -> list[int]:
            response = await client.post("/tokenize", json=body)
            assert response.status_code == 200, response.text
            found: list[int] = response.json()["tokens"]
            return found

        for options in ({"add_generation_prompt": True}, {"add_generation_prompt": False}):
            assert await tokens(messages=TWO, **options) == reference_ids(embedding_folder, TWO, **options)
        open_end = {"continue_final_message": True}
        assert await tokens(messages=TWO, **open_end) == reference_ids(embedding_folder, TWO, **open_end)
        assert await tokens(messages=ONE) == reference_ids(embedding_folder, ONE, add_generation_prompt=True)
        with_special = await tokens(messages=ONE, add_special_tokens=True)
        assert with_special[1:-1] == await tokens(messages=ONE)
        tools = [{"type": "function", "function": {"name": "dive", "parameters": {"<": "é"}}}]
        listed = reference_ids(embedding_folder, ONE, tools=tools, add_generation_prompt=True)
        assert await tokens(messages=ONE, tools=tools) == listed
        joined = [{"role": "user", "content": "What is\na cenote?"}]
        assert await tokens(messages=PARTS) == await tokens(messages=joined)


async def test_generation_prompt_of_vectors(embedding_folder: Path) -> None:
    ids = reference_ids(embedding_folder, ONE, add_generation_prompt=True)
    async with asking(embedding_folder) as client:
        expected = arrays_of(await client.post("/v1/embeddings", json={"input": ids, "add_special_tokens": False}))
        ours = await client.post("/v1/embeddings", json={"messages": ONE, "add_generation_prompt": True})
    np.testing.assert_allclose(arrays_of(ours), expected, atol=2e-6)


async def test_the_servers_template_wins(embedding_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.jinja"
    path.write_text(OTHER, encoding="utf-8")
    for given in (OTHER, str(path)):
        async with asking(embedding_folder, chat_template=given) as client:
            body = {"messages": TWO, "chat_template_kwargs": {"ending": "!"}}
            ours = (await client.post("/tokenize", json=body)).json()["tokens"]
            text = " ".join(message["content"] for message in TWO) + " !"
            plain = {"prompt": text, "add_special_tokens": False}
            assert ours == (await client.post("/tokenize", json=plain)).json()["tokens"]


async def test_a_requests_template_needs_trust(embedding_folder: Path) -> None:
    body = {"messages": ONE, "chat_template": OTHER}
    inside = {"messages": ONE, "chat_template_kwargs": {"chat_template": OTHER}}
    async with asking(embedding_folder) as client:
        for path in ("/v1/embeddings", "/pooling", "/tokenize"):
            for untrusted in (body, inside):
                response = await client.post(path, json=untrusted)
                assert response.status_code == 400
                assert response.json()["error"]["param"] == "chat_template"
    async with asking(embedding_folder, ServerSettings(trust_request_chat_template=True)) as client:
        plain = {"prompt": "What is a cenote? ", "add_special_tokens": False}
        expected = (await client.post("/tokenize", json=plain)).json()["tokens"]
        for trusted in (body, inside):
            assert (await client.post("/tokenize", json=trusted)).json()["tokens"] == expected
        broken = await client.post("/tokenize", json={**body, "chat_template": "{% if %}"})
        assert broken.status_code == 400
        failing = await client.post("/tokenize", json={**body, "chat_template": "{{ raise_exception('no') }}"})
        assert "no" in failing.json()["error"]["message"]
        unsafe = await client.post("/tokenize", json={**body, "chat_template": "{{ ''.__class__.__mro__ }}"})
        assert unsafe.status_code == 400


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({"messages": []}, "messages", "is empty"),
        ({"messages": [[]]}, "messages[0]", "is empty"),
        ({"messages": [ONE, ONE[0]]}, "messages", "mixes"),
        ({"messages": [{"content": "a"}]}, "messages[0]", "role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "cannot be read"),
        ({"input": [[*ONE, {"role": 1}]]}, "input[0][1]", "role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
            "messages[0].content",
            "image_url",
        ),
        (
            {"messages": ONE, "add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message",
            "Cannot set both",
        ),
        ({"messages": ONE, "chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs", "reserved"),
        ({"messages": ONE, "input": "a"}, "messages", "both"),
        ({"messages": ONE, "prompt_name": "query"}, "prompt_name", "first message"),
        (
            {"messages": [*ONE, {"role": "tool"}], "continue_final_message": True},
            "continue_final_message",
            "does not hold",
        ),
    ],
)
async def test_what_is_no_conversation(embedding_folder: Path, body: dict[str, Any], param: str, part: str) -> None:
    async with asking(embedding_folder) as client:
        response = await client.post("/v1/embeddings", json=body)
    assert response.status_code == 400
    found = response.json()["error"]
    assert part in found["message"]
    assert found["param"] == param


@pytest.mark.parametrize("kind", ["/v1/embeddings", "/classify", "/pooling", "/tokenize"], indirect=True)
def test_without_a_template_conversations_are_refused(kind: Kind, request: pytest.FixtureRequest) -> None:
    path = request.node.callspec.params["kind"]
    response = kind.ask(path, messages=ONE)
    assert response.status_code == 400
    assert f"{kind.name} has no chat template" in response.json()["error"]["message"]


@pytest.fixture(scope="module")
def pair_reader(tiny: Tiny) -> Iterator[LLM]:
    """A cross-encoder."""
    with LLM(str(tiny("bert", head="sequence_classification", num_labels=1)), device="cpu") as llm:
        yield llm


@pytest.mark.parametrize("fields", [{}, {"instruction": "answers"}, {"chat_template_kwargs": {"instruction": "a"}}])
async def test_the_servers_template_makes_pairs(tiny: Tiny, pair_reader: LLM, fields: dict[str, Any]) -> None:
    folder = tiny("bert", head="sequence_classification", num_labels=1)
    word = fields.get("instruction") or fields.get("chat_template_kwargs", {}).get("instruction") or "is about"
    expected = [out.outputs.probs[0] for out in pair_reader.classify([f"one {word} two", f"one {word} three"])]
    async with asking(folder, chat_template=PAIRS) as client:
        body = {"text_1": "one", "text_2": ["two", "three"], **fields}
        response = await client.post("/score", json=body)
        assert "x-ignored-fields" not in response.headers
        np.testing.assert_allclose([item["score"] for item in response.json()["data"]], expected, atol=2e-6)
        reserved = await client.post("/score", json={**body, "chat_template_kwargs": {"tools": []}})
        assert reserved.json()["error"]["param"] == "chat_template_kwargs"


async def test_the_tokenizers_template_makes_no_pairs(tiny: Tiny, pair_reader: LLM, tmp_path: Path) -> None:
    folder = templated(tiny("bert", head="sequence_classification", num_labels=1), tmp_path / "folder")
    (expected,) = pair_reader.score("one", "two")
    async with asking(folder) as client:
        ours = await client.post("/score", json={"text_1": "one", "text_2": "two"})
    assert ours.json()["data"][0]["score"] == pytest.approx(expected.outputs.score, abs=2e-6)
