"""IO processors behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.io_plugins import install
from support.rows import BATCH_LIMIT, assert_equal

from .conftest import Kind
from .running import Server

TEXT = "one two three four five"
TEXTS = ["a", "b c d"]


def asking(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60)


@pytest.fixture(scope="module")
def passages(folder: Path, example_plugin: Path) -> Iterator[httpx.Client]:
    """The example, installed, behind a server."""
    settings = {"io_processor_plugin": "passages"}
    with Server(folder, model_settings=settings, paths=[example_plugin]) as server, asking(server) as client:
        yield client


@pytest.fixture(scope="module")
def told(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One that was written for the reference; the model reads as its default task."""
    paths = [install(tmp_path_factory.mktemp("told"))]
    settings = {"io_processor_plugin": "told"}
    with Server(folder, model_settings=settings, paths=paths) as server, asking(server) as client:
        yield client


@pytest.mark.parametrize("path", ["/pooling", "/invocations", "/vllm/pooling"])
def test_data_comes_back_as_the_plugin_answers_it(passages: httpx.Client, embedder: Kind, path: str) -> None:
    body = {"data": {"text": TEXT, "chunk": 2}, "task": "plugin", "request_id": "mine"}
    response = passages.post(path, json=body)
    answer = response.json()
    assert set(answer) == {"request_id", "created_at", "data"}
    assert answer["request_id"] == "pooling-mine"
    assert answer["created_at"] > 1.7e9
    assert [(one["start"], one["end"]) for one in answer["data"]] == [(0, 7), (8, 18), (19, 23)]
    texts = ["one two", "three four", "five"]
    expected = embedder.llm.embed(texts, output="numpy", use_tqdm=False, input_type="document")
    assert_equal([one["embedding"] for one in answer["data"]], expected, BATCH_LIMIT)
    assert float(response.headers["x-inference-time"]) > 0
    assert passages.post(path, json={"data": body["data"]}).json()["data"] == answer["data"]


def test_requests_at_once_do_not_mix(passages: httpx.Client) -> None:
    def ends(chunk: int) -> list[int]:
        body = {"data": {"text": TEXT, "chunk": chunk}, "request_id": "the same"}
        return [one["end"] for one in passages.post("/pooling", json=body).json()["data"]]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ends, [1, 2, 3, 4, 5] * 8))
    assert found == [[3, 7, 13, 18, 23], [7, 18, 23], [13, 23], [18, 23], [23]] * 8


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_an_installed_mode_of_pooling(passages: httpx.Client, embedder: Kind, path: str) -> None:
    texts = ["", "a", "b c d", "one two three four five"]
    rows = passages.post(path, json={"input": texts, "pooling": "INNER_mean"}).json()["data"]
    states = embedder.llm.encode(texts, pooling_task="token_embed", normalize=False, use_tqdm=False)
    inner = [one.outputs.data[1:-1] if len(one.outputs.data) > 2 else one.outputs.data for one in states]
    expected = [(row := one.mean(0)) / row.norm() for one in inner]
    assert_equal([one.get("embedding", one.get("data")) for one in rows], expected)
    unknown = passages.post(path, json={"input": texts, "pooling": "outer"})
    assert unknown.status_code == 400
    assert "weightedmean, last, inner_mean" in unknown.json()["error"]["message"]


def test_an_installed_task(passages: httpx.Client, embedder: Kind) -> None:
    texts = ["", "a", "b c d", "one two three four five"]
    body = {"input": texts, "task": "passage_embed", "options": {"tokens": 4}, "input_type": "query"}
    rows = passages.post("/pooling", json=body).json()["data"]
    states = embedder.llm.encode(texts, pooling_task="token_embed", normalize=False, input_type="query", use_tqdm=False)
    for row, state in zip(rows, states, strict=True):
        means = np.stack([part.mean(0) for part in state.outputs.data.split(4)])
        assert_equal(row["data"], means / np.linalg.norm(means, axis=1, keepdims=True))
    for changed, param, part in (
        ({"options": {"size": 4}}, "size", "passage_embed has no option 'size'"),
        ({"options": {"tokens": 0}}, "tokens", "At least 1"),
        ({"top_k": 4}, "top_k", "passage_embed has no option 'top_k'"),
        ({"task": "embed"}, "options", "Its options are fields of the request"),
        ({"task": "passages"}, "task", "Unsupported task: 'passages'"),
    ):
        response = passages.post("/pooling", json={**body, **changed})
        assert response.status_code == 400
        assert (response.json()["error"]["param"], part in response.json()["error"]["message"]) == (param, True)


def test_an_installed_use(passages: httpx.Client) -> None:
    given = {"query": "three four", "documents": ["a", "one two three four five"]}
    response = passages.post("/uses/best_passage", json={"input": given, "options": {"tokens": 3}})
    answer = response.json()
    assert set(answer) == {"id", "created", "model", "data", "usage"}
    assert sorted(one["document"] for one in answer["data"]) == [0, 1]
    assert answer["data"][0]["score"] >= answer["data"][1]["score"]
    assert answer["usage"]["prompt_tokens"] > 10
    assert float(response.headers["x-inference-time"]) > 0
    best = passages.post("/uses/best_passage", json={"input": given, "options": {"tokens": 3, "top_n": 1}})
    assert best.json()["data"] == answer["data"][:1]
    for path, body, param in (
        ("/uses/best_passage", {"input": "a"}, "input"),
        ("/uses/best_passage", {"input": given, "options": {"size": 1}}, "size"),
        ("/uses/score", {"input": given}, "use"),
    ):
        refused = passages.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_inputs_without_data_are_answered_as_ever(passages: httpx.Client, embedder: Kind) -> None:
    found = passages.post("/v1/embeddings", json={"input": TEXTS}).json()["data"]
    expected = embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False)
    assert_equal([one["embedding"] for one in found], expected, BATCH_LIMIT)
    assert len(passages.post("/pooling", json={"input": TEXTS, "data": None}).json()["data"]) == 2


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({"data": {"text": "", "chunk": 1}}, "data", "The plugin refuses the data: `text` is a text that is not empty"),
        ({"data": []}, "data", "an object with `text` and `chunk`"),
        ({"task": "plugin"}, "data", "has no data"),
        ({"task": "plugin", "data": None}, "data", "has no data"),
        ({"data": {}, "input": "a"}, "data", "both `data` and inputs"),
        ({"data": {}, "task": "embed"}, "task", "only supported for the 'plugin' pooling task"),
        ({"data": {"text": "a " * 200, "chunk": 200}}, "input_tokens", "has 202 tokens"),
    ],
)
def test_what_is_refused(passages: httpx.Client, body: dict[str, Any], param: str, part: str) -> None:
    response = passages.post("/pooling", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert part in error["message"]


def test_long_prompts_are_cut_where_the_request_says_so(passages: httpx.Client) -> None:
    body = {"data": {"text": "a " * 200, "chunk": 200}, "truncate_prompt_tokens": -1}
    response = passages.post("/pooling", json=body)
    assert len(response.json()["data"]) == 1
    assert response.headers["x-truncated"] == "1"


def test_tensors_and_any_json_are_written(told: httpx.Client, embedder: Kind) -> None:
    answer = told.post("/pooling", json={"data": {"prompts": TEXTS}}).json()["data"]
    expected = embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False)
    assert_equal(np.array(answer["rows"]), expected, BATCH_LIMIT)
    assert [tokens[0] for tokens in answer["tokens"]] == ["[CLS]", "[CLS]"]
    said = {"a": [1, None, "ü"], "b": {"c": 2.5}}
    assert told.post("/pooling", json={"data": {"prompts": "a", "answer": said}}).json()["data"] == said


def test_an_answer_that_is_no_json_is_the_plugin_s_fault(told: httpx.Client) -> None:
    response = told.post("/pooling", json={"data": {"prompts": "a", "answer": "no json"}})
    assert response.status_code == 500
    assert "cannot be written as JSON" in response.json()["error"]["message"]
    assert told.get("/health").status_code == 200
