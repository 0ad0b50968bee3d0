"""Sparse vectors through a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import orjson
import pytest

from cenote.server.pooling import PoolingResponse
from support.m3 import m3_folder
from support.rows import BATCH_LIMIT, assert_equal
from support.sparse_folders import sparse_folder
from support.texts import short_texts

from .conftest import Kind, serving

TEXTS = [*short_texts(4), ""]


@pytest.fixture
def kind(masked_lm: Kind) -> Kind:
    """A masked language model of BERT's."""
    return masked_lm


def test_vectors_equal_the_offline_api(kind: Kind) -> None:
    response = kind.post("/pooling", input=TEXTS, task="sparse", top_k=12, threshold=0.5)
    offline = kind.llm.embed_sparse(TEXTS, top_k=12, threshold=0.5, use_tqdm=False)
    body = response.json()
    assert [item["index"] for item in body["data"]] == list(range(len(TEXTS)))
    for item, out in zip(body["data"], offline, strict=True):
        assert item["data"]["indices"] == out.outputs.indices
        assert item["data"]["tokens"] == out.outputs.tokens
        assert_equal([item["data"]["values"]], [out.outputs.values], BATCH_LIMIT)
    assert body["usage"]["prompt_tokens"] == sum(len(out.prompt_token_ids) for out in offline)


def test_answers_have_exactly_the_fields_of_their_type(kind: Kind) -> None:
    content = kind.post("/pooling", input=TEXTS[:2], task="sparse").content
    assert msgspec.to_builtins(msgspec.json.decode(content, type=PoolingResponse)) == orjson.loads(content)


def test_input_types_choose_the_route_of_a_router(tmp_path: Path) -> None:
    serve = serving("router", sparse_folder(tmp_path, "router"))
    router = next(serve)
    for input_type in ("query", "document"):
        body = router.post("/pooling", input=TEXTS, input_type=input_type).json()
        offline = router.llm.embed_sparse(TEXTS, input_type=input_type, use_tqdm=False)
        assert [item["data"]["indices"] for item in body["data"]] == [out.outputs.indices for out in offline]
    next(serve, None)


def test_hybrid_scores_take_weights(tmp_path: Path) -> None:
    serve = serving("m3", m3_folder(tmp_path))
    m3 = next(serve)
    asked: dict[str, Any] = {"score_type": "hybrid", "weights": [1, 0.5, 2]}
    body = m3.post("/score", queries=TEXTS[0], documents=TEXTS, **asked).json()
    offline = m3.llm.score(TEXTS[0], TEXTS, use_tqdm=False, **asked)
    assert_equal([[item["score"] for item in body["data"]]], [[out.outputs.score for out in offline]], BATCH_LIMIT)
    refused = m3.ask("/score", queries="a", documents="b", score_type="hybrid", weights=[1])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "weights")
    next(serve, None)


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"task": "sparse", "encoding_format": "base64"}, "encoding_format", "They are given as float only"),
        ({"task": "sparse", "dimensions": 3}, "dimensions", "does not support ['dimensions']"),
        ({"task": "embed", "top_k": 3}, "top_k", "embed has no option 'top_k'"),
        ({"task": "classify"}, "task", "('embed', 'token_embed', 'token_classify', 'sparse')"),
    ],
)
def test_what_is_refused(kind: Kind, body: dict[str, Any], param: str, message: str) -> None:
    response = kind.ask("/pooling", input="a", **body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


def test_scores_of_sparse_vectors(kind: Kind) -> None:
    response = kind.post("/score", text_1=TEXTS[0], text_2=TEXTS[1:3], score_type="sparse")
    offline = kind.llm.score(TEXTS[0], TEXTS[1:3], score_type="sparse", use_tqdm=False)
    assert_equal([[d["score"] for d in response.json()["data"]]], [[out.outputs.score for out in offline]], BATCH_LIMIT)


def test_a_model_without_them_refuses(embedder: Kind) -> None:
    response = httpx.post(f"{embedder.server.url}/pooling", json={"input": "a", "task": "sparse"}, timeout=60)
    assert response.status_code == 400
    assert "Unsupported task: 'sparse'" in response.json()["error"]["message"]
