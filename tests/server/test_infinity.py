"""The dialect of infinity: what each of its routes gives, and how it tells failures."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.rows import BATCH_LIMIT, assert_equal
from support.texts import edge_texts, short_texts

from .conftest import ALIAS, NAME, Kind
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(5)]
LONG = edge_texts()[-1]
UNNAMED = "default/not-specified"


@pytest.mark.parametrize("path", ["/infinity/embeddings", "/embeddings"])
def test_vectors(embedder: Kind, path: str) -> None:
    body = {"input": TEXTS, "model": UNNAMED, "dimensions": 0, "modality": "text", "encoding_format": "float"}
    answer = embedder.post(path, **body)
    expected = embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False)
    assert_equal([one["embedding"] for one in answer.json()["data"]], expected, BATCH_LIMIT)
    assert answer.json()["model"] == NAME
    packed = embedder.post(path, input=TEXTS, encoding_format="base64", dimensions=8).json()["data"]
    read = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed]
    assert_equal(read, embedder.llm.embed(TEXTS, dimensions=8, output="numpy", use_tqdm=False), BATCH_LIMIT)
    assert embedder.post(path, input=LONG).headers["x-truncated"] == "1"
    assert "No model here reads" in embedder.ask(path, input="a", modality="image").json()["error"]["message"]


@pytest.mark.parametrize("path", ["/infinity/rerank", "/rerank"])
def test_rankings(cross_encoder: Kind, path: str) -> None:
    query, *texts = TEXTS
    body = {"query": query, "documents": texts, "raw_scores": False, "model": UNNAMED}
    answer = cross_encoder.post(path, **body, return_documents=True, top_n=2).json()
    expected = cross_encoder.llm.rerank(query, texts, top_n=2, use_tqdm=False)
    assert answer["object"] == "rerank"
    assert [(one["index"], one["document"]) for one in answer["results"]] == [
        (one.index, one.document) for one in expected
    ]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == pytest.approx([one.score for one in expected], abs=2e-6)
    raw = cross_encoder.post(path, **{**body, "raw_scores": True}).json()["results"]
    logits = cross_encoder.llm.rerank(query, texts, use_activation=False, use_tqdm=False)
    assert [one["relevance_score"] for one in raw] == pytest.approx([one.score for one in logits], abs=1e-5)
    assert {one["document"] for one in raw} == {None}
    assert cross_encoder.post(path, **{**body, "documents": [LONG]}).headers["x-truncated"] == "1"


def test_an_embedder_ranks_by_its_vectors_whatever_scores_are_asked_for(embedder: Kind) -> None:
    query, *texts = TEXTS
    expected = embedder.llm.rerank(query, texts, use_tqdm=False)
    for raw in (False, True):
        found = embedder.post("/rerank", query=query, documents=texts, raw_scores=raw).json()["results"]
        assert [one["relevance_score"] for one in found] == pytest.approx([one.score for one in expected], abs=2e-6)


@pytest.mark.parametrize("path", ["/infinity/classify", "/classify"])
@pytest.mark.parametrize("raw", [False, True])
def test_classes(classifier: Kind, path: str, raw: bool) -> None:
    answer = classifier.post(path, input=[*TEXTS, LONG], raw_scores=raw, model=UNNAMED)
    assert answer.headers["x-truncated"] == "1"
    use_activation = False if raw else None
    expected = classifier.llm.classify(TEXTS, use_activation=use_activation, use_tqdm=False)
    assert classifier.llm.recipe.classifier is not None
    labels = classifier.llm.recipe.classifier.labels
    for found, out in zip(answer.json()["data"], expected, strict=False):
        values = np.array(out.outputs.probs)
        order = np.argsort(-values)
        assert [one["label"] for one in found] == [labels[at] for at in order]
        assert [one["score"] for one in found] == pytest.approx(values[order].tolist(), abs=1e-5)


def test_names(embedder: Kind, cross_encoder: Kind) -> None:
    for path in ("/models", "/infinity/models"):
        listed = httpx.get(embedder.server.url + path).json()["data"]
        assert [one["id"] for one in listed] == [NAME, ALIAS]
        assert listed[0]["capabilities"] == ["embed", "rerank"]
        assert listed[0]["stats"]["queue_absolute"] == 0
    (only,) = httpx.get(f"{cross_encoder.server.url}/models").json()["data"]
    assert only["capabilities"] == ["classify", "rerank"]


@pytest.mark.parametrize(
    ("path", "body", "part"),
    [
        ("/infinity/embeddings", {"input": []}, "at least one"),
        ("/infinity/embeddings", {"input": "a", "model": "other"}, "does not exist"),
        ("/infinity/rerank", {"query": "a", "documents": []}, ""),
        ("/infinity/classify", {"input": []}, "one or more"),
        ("/classify", {"input": ["a"], "raw_scores": True}, "is no classifier"),
    ],
)
def test_failures(embedder: Kind, path: str, body: dict[str, Any], part: str) -> None:
    refused = embedder.ask(path, **body)
    assert refused.status_code == 400, refused.text
    assert part in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == 400


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("path", ["/infinity/embeddings", "/infinity/classify"])
def test_broken_bodies_are_told_as_infinity_does(client: httpx.Client, path: str, name: str) -> None:
    response = client.post(path, content=broken(name, "input"), headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
