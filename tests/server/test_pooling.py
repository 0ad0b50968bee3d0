"""`/pooling` and `/invocations` through real servers: every model as every task, in every form of array."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from cenote import PoolingParams
from support.texts import short_texts

from .conftest import Kind

TEXTS = [*short_texts(3), "a"]
READINGS = [
    ("embedder", "embed"),
    ("embedder", "token_embed"),
    ("default_embedder", "embed"),
    ("default_embedder", "token_embed"),
    ("classifier", "classify"),
    ("classifier", "token_classify"),
    ("token_classifier", "token_classify"),
]
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
}


def rows_of(response: httpx.Response) -> list[np.ndarray[Any, Any]]:
    items = response.json()["data"]
    assert [item["index"] for item in items] == list(range(len(items)))
    return [np.array(item.get("data", item.get("embedding")), np.float32) for item in items]


def offline(kind: Kind, task: str, **options: Any) -> list[np.ndarray[Any, Any]]:
    outputs = kind.llm.encode(TEXTS, PoolingParams(**options), pooling_task=task, use_tqdm=False)
    return [output.outputs.data.numpy() for output in outputs]


def assert_same(ours: list[np.ndarray[Any, Any]], theirs: list[np.ndarray[Any, Any]]) -> None:
    for row, expected in zip(ours, theirs, strict=True):
        assert row.shape == expected.shape
        assert np.abs(row - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize(("kind", "task"), READINGS, indirect=["kind"])
def test_every_task_equals_the_offline_api(kind: Kind, task: str) -> None:
    response = kind.post("/pooling", input=TEXTS, task=task)
    assert_same(rows_of(response), offline(kind, task))
    raw = kind.post("/pooling", input=TEXTS, task=task, use_activation=False)
    assert_same(rows_of(raw), offline(kind, task, use_activation=False))
    body = response.json()
    assert body["id"] == f"pooling-{response.headers['x-request-id']}"
    assert {item["object"] for item in body["data"]} == {"pooling"}
    assert body["usage"]["prompt_tokens"] == sum(kind.llm.engine.tokenizer.count(text) for text in TEXTS)


@pytest.mark.parametrize(
    ("kind", "task"),
    [("embedder", "embed"), ("classifier", "classify"), ("token_classifier", "token_classify")],
    indirect=["kind"],
)
def test_without_a_task_the_models_own_serves(kind: Kind, task: str) -> None:
    assert_same(rows_of(kind.post("/pooling", input=TEXTS)), offline(kind, task))


def read_back(part: bytes, kind: torch.dtype, endianness: str, shape: list[int]) -> torch.Tensor:
    """Raw bytes as the float32 that they mean."""
    items = np.frombuffer(part, np.uint8).reshape(-1, kind.itemsize)
    ours = items if endianness == sys.byteorder else items[:, ::-1]
    return torch.frombuffer(bytearray(ours.tobytes()), dtype=kind).reshape(shape).float()


@pytest.mark.parametrize("endianness", ["little", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_different_heights_in_every_form(embedder: Kind, dtype: str, endianness: str) -> None:
    asked = {"input": TEXTS, "task": "token_embed", "embed_dtype": dtype, "endianness": endianness}
    rows = rows_of(embedder.post("/pooling", input=TEXTS, task="token_embed"))
    assert len({len(row) for row in rows}) > 1
    kind = DTYPES[dtype]
    expected = [torch.from_numpy(row).to(kind).float() for row in rows]
    whole = embedder.post("/pooling", **asked, encoding_format="bytes")
    places = json.loads(whole.headers["metadata"])["data"]
    assert [place["shape"] for place in places] == [list(row.shape) for row in rows]
    assert {(place["embed_dtype"], place["endianness"]) for place in places} == {(dtype, endianness)}
    parts = [whole.content[place["start"] : place["end"]] for place in places]
    for part, row in zip(parts, expected, strict=True):
        assert torch.equal(read_back(part, kind, endianness, list(row.shape)), row)
    assert embedder.post("/pooling", **asked, encoding_format="bytes_only").content == b"".join(parts)
    strings = embedder.post("/pooling", **asked, encoding_format="base64").json()["data"]
    assert [base64.b64decode(item["data"]) for item in strings] == parts


@pytest.mark.parametrize("task", ["embed", "token_embed"])
def test_dimensions_are_served(embedder: Kind, task: str) -> None:
    rows = rows_of(embedder.post("/pooling", input=TEXTS, task=task, dimensions=8))
    assert {row.shape[-1] for row in rows} == {8}
    assert_same(rows, offline(embedder, task, dimensions=8))


def test_prompts_go_before_token_vectors_too(embedder: Kind) -> None:
    rows = rows_of(embedder.post("/pooling", input=TEXTS, task="token_embed", input_type="query"))
    outputs = embedder.llm.encode(TEXTS, pooling_task="token_embed", prompt_name="query", use_tqdm=False)
    assert_same(rows, [output.outputs.data.numpy() for output in outputs])
    assert len(rows[-1]) > len(rows_of(embedder.post("/pooling", input=TEXTS, task="token_embed"))[-1])


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("embedder", "embedding", "embed"),
        ("embedder", "score", "embed"),
        ("embedder", "encode", "token_embed"),
        ("cross_encoder", "score", "classify"),
        ("classifier", "reward", "token_classify"),
        ("classifier", "embedding", "classify"),
        ("token_classifier", "score", "token_classify"),
    ],
    indirect=["kind"],
)
def test_old_names_of_tasks_warn(kind: Kind, old: str, new: str) -> None:
    response = kind.post("/pooling", input=TEXTS, task=old)
    assert_same(rows_of(response), offline(kind, new))
    assert response.headers["warning"].startswith("299 - ")
    assert f"task={new}" in response.headers["warning"]
    assert "warning" not in kind.post("/pooling", input=TEXTS, task=new).headers


@pytest.mark.parametrize(
    ("kind", "body", "param", "part"),
    [
        ("embedder", {"task": "classify"}, "task", "Unsupported task: 'classify'"),
        ("token_classifier", {"task": "classify"}, "task", "Supported tasks: ('token_classify',)"),
        ("classifier", {"dimensions": 2}, "dimensions", "does not support ['dimensions'] parameters"),
        ("embedder", {"dimensions": 5}, "dimensions", "Matryoshka dimensions [8, 16]"),
        ("embedder", {"task": "plugin"}, "task", "No IOProcessor plugin"),
        ("embedder", {"data": {"a": 1}}, "data", "No IOProcessor plugin"),
        ("embedder", {"task": "generate"}, "task", "supported tasks: ('embed', 'token_embed')"),
    ],
    indirect=["kind"],
)
def test_what_pooling_refuses(kind: Kind, body: dict[str, Any], param: str, part: str) -> None:
    response = kind.ask("/pooling", **{"input": "a", **body})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert part.lower() in response.json()["error"]["message"].lower()


@pytest.mark.parametrize(
    ("kind", "body", "prefix"),
    [
        ("embedder", {"input": TEXTS}, "embd"),
        ("embedder", {"input": TEXTS, "query": "a", "documents": ["b"]}, "embd"),
        ("classifier", {"input": TEXTS}, "classify"),
        ("token_classifier", {"input": TEXTS, "task": "reward"}, "pooling"),
        ("cross_encoder", {"query": "a", "documents": TEXTS}, "score"),
        ("cross_encoder", {"text_1": "a", "text_2": TEXTS}, "score"),
        ("embedder", {"queries": "a", "items": TEXTS}, "score"),
    ],
    indirect=["kind"],
)
def test_invocations_find_the_route(kind: Kind, body: dict[str, Any], prefix: str) -> None:
    answer = kind.post("/invocations", **body).json()
    assert answer["id"].startswith(f"{prefix}-")
    assert len(answer.get("data", answer.get("results"))) == len(TEXTS)


@pytest.mark.parametrize("body", [{}, {"query": "a"}, {"text_1": "a", "data_2": "b"}])
def test_invocations_without_a_route(embedder: Kind, body: dict[str, Any]) -> None:
    response = embedder.ask("/invocations", **body)
    assert response.status_code == 400
    assert "Cannot find suitable handler for request. Expected one of: [" in response.json()["error"]["message"]
