"""The dialect of Mixedbread: what each of its routes gives, and how it tells failures."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.rows import BATCH_LIMIT, assert_equal
from support.texts import edge_texts, short_texts

from .conftest import Kind
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(5)]
LONG = edge_texts()[-1]
ERROR = {"type", "url", "message", "details"}
PATH = "/mixedbread/v1/embeddings"


def test_vectors(embedder: Kind) -> None:
    answer = embedder.post(PATH, input=TEXTS, prompt="query: ", dimensions=8, model=embedder.name).json()
    expected = embedder.llm.embed(TEXTS, prompt="query: ", dimensions=8, output="numpy", use_tqdm=False)
    assert_equal([one["embedding"] for one in answer["data"]], expected, BATCH_LIMIT)
    told = {name: answer[name] for name in ("normalized", "encoding_format", "dimensions", "object", "model")}
    assert told == {
        "normalized": True,
        "encoding_format": "float",
        "dimensions": 8,
        "object": "list",
        "model": embedder.name,
    }
    raw = embedder.post(PATH, input=TEXTS[0], normalized=False).json()
    assert raw["normalized"] is False
    expected = embedder.llm.embed(TEXTS[0], normalize=False, output="numpy", use_tqdm=False)
    assert_equal([raw["data"][0]["embedding"]], expected, BATCH_LIMIT)


def test_several_forms(embedder: Kind) -> None:
    names = ["float", "int8", "binary", "base64"]
    response = embedder.post(PATH, input=TEXTS, encoding_format=names)
    data = response.json()["data"]
    assert {one["object"] for one in data} == {"embedding_dict"}
    assert all(list(one["embedding"]) == names for one in data)
    assert "cenote calibrate" in response.headers["warning"]
    floats = np.array([one["embedding"]["float"] for one in data], np.float32)
    assert_equal(floats, embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False), BATCH_LIMIT)
    read = [np.frombuffer(base64.b64decode(one["embedding"]["base64"]), "<f4") for one in data]
    assert np.array_equal(read, floats)
    bits = embedder.llm.embed(TEXTS, precision="binary", output="numpy", use_tqdm=False)
    assert np.array_equal([one["embedding"]["binary"] for one in data], bits)


def test_long_texts(embedder: Kind) -> None:
    ends = []
    for strategy in ("start", "end"):
        cut = embedder.post("/v1/embeddings", input=LONG, truncation_strategy=strategy)
        assert cut.headers["x-truncated"] == "1"
        ends.append(cut.json()["data"][0]["embedding"])
    assert ends[0] != ends[1]
    assert embedder.post(PATH, input=LONG).json()["data"][0]["embedding"] == pytest.approx(ends[1], abs=5e-6)
    refused = embedder.ask("/v1/embeddings", input=LONG, truncation_strategy="none")
    assert (refused.status_code, refused.json()["type"]) == (400, "too_long")


@pytest.mark.parametrize("path", ["/mixedbread/v1/reranking", "/v1/reranking"])
def test_rankings(cross_encoder: Kind, path: str) -> None:
    query, *texts = TEXTS
    expected = cross_encoder.llm.rerank(query, texts, top_n=2, use_tqdm=False)
    answer = cross_encoder.post(path, query=query, input=texts, top_k=2, return_input=True).json()
    assert [(one["index"], one["input"]) for one in answer["data"]] == [(one.index, one.document) for one in expected]
    assert [one["score"] for one in answer["data"]] == pytest.approx([one.score for one in expected], abs=2e-6)
    assert (answer["top_k"], answer["return_input"]) == (2, True)
    bare = cross_encoder.post(path, query=query, input=[LONG, "a"])
    assert not any("input" in one for one in bare.json()["data"])
    assert bare.headers["x-truncated"] == "1"


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        (PATH, {"input": []}, 400, "no_inputs"),
        (PATH, {"input": "a", "encoding_format": []}, 400, "bad_body"),
        (PATH, {"input": "a", "dimensions": 5}, 400, "bad_input"),
        (PATH, {"input": "a", "model": "other"}, 404, "model_not_found"),
        ("/v1/embeddings", {"input": "a", "truncation_strategy": "middle"}, 400, "bad_body"),
        ("/v1/reranking", {"query": "a", "input": ["b"], "rank_fields": ["c"]}, 400, "bad_input"),
        ("/v1/reranking", {"query": "a", "input": [{"image": "b"}]}, 400, "bad_input"),
        ("/mixedbread/nothing", {}, 404, "not_found"),
    ],
)
def test_failures(embedder: Kind, path: str, body: dict[str, Any], status: int, kind: str) -> None:
    refused = embedder.ask(path, **body)
    assert refused.status_code == status, refused.text
    assert set(refused.json()) == ERROR
    assert refused.json()["type"] == kind


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_told_as_mixedbread_does(client: httpx.Client, name: str) -> None:
    response = client.post(PATH, content=broken(name, "input"), headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert set(response.json()) == ERROR
