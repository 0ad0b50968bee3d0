"""`/v1/embeddings` through a real server: the reference's numbers in every form, and every field."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from cenote.llm import LLM
from support.references import reference_vectors
from support.texts import edge_texts, short_texts

from .conftest import ALIAS, KEY, NAME
from .running import Server

TEXTS = [*short_texts(6), "", "Ünïcödé 🙂"]
Post = Callable[..., httpx.Response]


@pytest.fixture
def post(client: httpx.Client) -> Post:
    """Ask for vectors; the answer is a 200."""

    def ask(path: str = "/v1/embeddings", **body: Any) -> httpx.Response:
        response = client.post(path, json=body)
        assert response.status_code == 200, response.text
        return response

    return ask


def vectors(response: httpx.Response) -> np.ndarray[Any, Any]:
    data = response.json()["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return np.array([item["embedding"] for item in data], np.float32)


def assert_same(ours: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> None:
    assert ours.shape == reference.shape
    assert np.abs(ours - reference).max() <= 1e-5 * np.abs(reference).max()


@pytest.fixture(scope="module")
def reference(folder: Path) -> np.ndarray[Any, Any]:
    return reference_vectors(folder, TEXTS)


def test_equal_to_sentence_transformers(post: Post, reference: np.ndarray[Any, Any]) -> None:
    response = post(input=TEXTS)
    assert_same(vectors(response), reference)
    body = response.json()
    assert body["object"] == "list"
    assert body["model"] == NAME
    assert body["id"] == f"embd-{response.headers['x-request-id']}"
    assert {item["object"] for item in body["data"]} == {"embedding"}


def test_equal_to_the_offline_api(post: Post, folder: Path) -> None:
    with LLM(str(folder), device="cpu") as llm:
        offline = llm.embed(TEXTS, output="numpy", use_tqdm=False)
    np.testing.assert_allclose(vectors(post(input=TEXTS)), offline, atol=2e-6)


def test_not_normalised_where_the_checkpoint_does_not(guarded: Server, raw_folder: Path) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    response = httpx.post(f"{guarded.url}/v1/embeddings", json={"input": TEXTS[:3]}, headers=headers, timeout=60)
    assert_same(vectors(response), reference_vectors(raw_folder, TEXTS[:3]))


@pytest.mark.parametrize("text", [*edge_texts()[:-1], TEXTS[0]])
def test_one_text_is_as_in_a_list(post: Post, text: str) -> None:
    alone, listed = post(input=text), post(input=["another text", text])
    np.testing.assert_allclose(vectors(alone)[0], vectors(listed)[1], atol=2e-6)


def test_token_ids_are_taken_as_they_are(post: Post, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text)["input_ids"] for text in TEXTS[:3]]
    by_text = post(input=TEXTS[:3])
    by_ids = post(input=ids)
    np.testing.assert_array_equal(vectors(by_ids), vectors(by_text))
    assert by_ids.json()["usage"] == by_text.json()["usage"]
    np.testing.assert_allclose(vectors(post(input=ids[0]))[0], vectors(by_text)[0], atol=2e-6)


def test_usage_counts_tokens(post: Post, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    count = sum(len(tokenizer(text)["input_ids"]) for text in TEXTS)
    usage = post(input=TEXTS).json()["usage"]
    assert usage == {
        "prompt_tokens": count,
        "total_tokens": count,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


@pytest.mark.parametrize("prefix", ["", "/openai", "/vllm"])
def test_every_prefix_and_name(post: Post, reference: np.ndarray[Any, Any], prefix: str) -> None:
    response = post(f"{prefix}/v1/embeddings", input=TEXTS, model=ALIAS, user="someone", encoding_format=None)
    assert_same(vectors(response), reference)
    assert response.json()["model"] == ALIAS


@pytest.mark.parametrize("endianness", ["little", "big"])
def test_base64(post: Post, endianness: str) -> None:
    floats = vectors(post(input=TEXTS))
    data = post(input=TEXTS, encoding_format="base64", endianness=endianness).json()["data"]
    wire = np.dtype(np.float32).newbyteorder("<" if endianness == "little" else ">")
    read = np.stack([np.frombuffer(base64.b64decode(item["embedding"]), wire) for item in data])
    np.testing.assert_array_equal(read, floats)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("float32", torch.float32),
        ("float16", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("fp8_e4m3", torch.float8_e4m3fn),
        ("fp8_e5m2", torch.float8_e5m2),
    ],
)
def test_bytes_in_every_type(post: Post, name: str, kind: torch.dtype) -> None:
    floats = torch.from_numpy(vectors(post(input=TEXTS)))
    whole = post(input=TEXTS, encoding_format="bytes", embed_dtype=name)
    bare = post(input=TEXTS, encoding_format="bytes_only", embed_dtype=name)
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.content == bare.content
    assert "metadata" not in bare.headers
    places = json.loads(whole.headers["metadata"])
    for place, row in zip(places["data"], floats, strict=True):
        read = torch.frombuffer(bytearray(whole.content[place["start"] : place["end"]]), dtype=kind)
        assert torch.equal(read.float(), row.to(kind).float())
        assert (place["embed_dtype"], place["shape"]) == (name, [len(row)])
    assert places["usage"]["prompt_tokens"] > 0


def test_dimensions_are_cut_and_normalised(post: Post) -> None:
    whole, cut = vectors(post(input=TEXTS)), vectors(post(input=TEXTS, dimensions=8))
    expected = whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, rtol=1e-5, atol=1e-7)


def test_normalising_can_be_switched_off(post: Post, reference: np.ndarray[Any, Any]) -> None:
    raw = vectors(post(input=TEXTS, use_activation=False))
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(lengths - 1).min() > 1e-3
    assert_same(raw / lengths, reference)


def test_the_old_name_of_normalising_works_with_a_warning(post: Post) -> None:
    old, new = post(input=TEXTS, normalize=False), post(input=TEXTS, use_activation=False)
    np.testing.assert_array_equal(vectors(old), vectors(new))
    assert "use_activation" in old.headers["warning"]
    assert "warning" not in new.headers


@pytest.mark.parametrize("field", ["prompt_name", "input_type"])
def test_prompts(post: Post, folder: Path, field: str) -> None:
    named = post(input=TEXTS[:3], **{field: "query"})
    assert_same(vectors(named), reference_vectors(folder, TEXTS[:3], prompt_name="query"))
    assert_same(vectors(post(input=TEXTS[:3], prompt="query: ")), vectors(named))


def test_an_unknown_input_type_is_passed_over_and_named(post: Post) -> None:
    response = post(input=TEXTS[:2], input_type="clustering", use_activations=True)
    np.testing.assert_array_equal(vectors(response), vectors(post(input=TEXTS[:2])))
    assert response.headers["x-ignored-fields"] == "input_type, use_activations"


def test_padding_changes_nothing(post: Post) -> None:
    padded = post(input=TEXTS, padding="max_length")
    np.testing.assert_array_equal(vectors(padded), vectors(post(input=TEXTS)))
    assert padded.headers["x-ignored-fields"] == "padding"
    assert "x-ignored-fields" not in post(input=TEXTS, padding="do_not_pad").headers


def test_special_tokens_can_be_left_out(post: Post, folder: Path) -> None:
    ids = AutoTokenizer.from_pretrained(folder)(TEXTS[0], add_special_tokens=False)["input_ids"]
    bare = post(input=TEXTS[0], add_special_tokens=False)
    np.testing.assert_array_equal(vectors(bare), vectors(post(input=ids, add_special_tokens=False)))
    assert bare.json()["usage"]["prompt_tokens"] == len(ids)


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_inputs_are_cut_on_request(post: Post, folder: Path, side: str) -> None:
    long = edge_texts()[-1]
    tokenizer = AutoTokenizer.from_pretrained(folder, truncation_side=side)
    ids = tokenizer(long, truncation=True, max_length=20)["input_ids"]
    cut = post(input=[long, "short"], truncate_prompt_tokens=20, truncation_side=side)
    np.testing.assert_allclose(vectors(cut)[0], vectors(post(input=ids))[0], atol=2e-6)
    assert cut.headers["x-truncated"] == "1"
    whole = post(input=long, truncate_prompt_tokens=-1)
    assert whole.json()["usage"]["prompt_tokens"] == 70


def test_ids_and_harmless_fields(post: Post) -> None:
    response = post(input="a", request_id="mine", priority=3, cache_salt="salt", mm_processor_kwargs=None)
    assert response.json()["id"] == "embd-mine"
    assert response.headers["x-request-id"] == "mine"
    assert "x-ignored-fields" not in response.headers


def test_headers_say_where_the_time_went(post: Post) -> None:
    headers = post(input=TEXTS).headers
    assert all(float(headers[f"x-{name}-time"]) > 0 for name in ("total", "tokenization", "queue", "inference"))
    assert headers["x-truncated"] == "0"


def test_many_inputs_in_one_request(post: Post) -> None:
    texts = [f"{number} {text[:40]}" for number, text in enumerate(short_texts(64) * 32)]
    whole = vectors(post(input=texts))
    assert len(whole) == 2048
    np.testing.assert_allclose(whole[1999], vectors(post(input=texts[1999]))[0], atol=2e-6)
