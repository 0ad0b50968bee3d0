"""The dialect of Jina: what each of its routes gives, and how it tells failures."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.rows import BATCH_LIMIT, assert_equal
from support.texts import edge_texts, short_texts

from .conftest import KEY, Kind
from .running import Server
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(5)]
CHUNKS = [text[:18] for text in TEXTS]
LONG = edge_texts()[-1]
ERROR = {"detail", "code", "request_id"}
PATHS = ("/jina/v1/embeddings", "/v1/embeddings")


def rows(answer: httpx.Response) -> list[Any]:
    """The vectors of an answer, in its order, which is that of the texts."""
    data = answer.json()["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


@pytest.mark.parametrize("path", PATHS)
def test_vectors_of_a_task(embedder: Kind, path: str) -> None:
    answer = embedder.post(path, input=TEXTS, task="retrieval.query", dimensions=8, model=embedder.name)
    how: dict[str, Any] = {"input_type": "retrieval.query", "dimensions": 8}
    expected = embedder.llm.embed(TEXTS, **how, output="numpy", use_tqdm=False)
    assert_equal(rows(answer), expected, BATCH_LIMIT)
    told = answer.json()
    assert (told["object"], told["model"]) == ("list", embedder.name)
    assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] > len(TEXTS)
    assert "x-ignored-fields" not in answer.headers


def test_a_task_that_is_not_known_chooses_no_prompt_and_is_told(embedder: Kind) -> None:
    answer = embedder.post("/v1/embeddings", input=[{"text": TEXTS[0]}, TEXTS[1]], task="separation")
    assert_equal(rows(answer), embedder.llm.embed(TEXTS[:2], prompt="", output="numpy", use_tqdm=False), BATCH_LIMIT)
    assert "no prompt" in answer.headers["warning"]
    assert answer.headers["x-ignored-fields"] == "task"


def test_chunks_know_their_document(embedder: Kind) -> None:
    answer = embedder.post("/v1/embeddings", input=CHUNKS[:3], late_chunking=True, task="retrieval.passage")
    expected = embedder.llm.embed_chunks(CHUNKS[:3], input_type="retrieval.passage")
    assert_equal(rows(answer), expected, BATCH_LIMIT)
    alone = rows(embedder.post("/v1/embeddings", input=CHUNKS[:3], task="retrieval.passage"))
    assert np.abs(np.array(alone) - expected).max() > 1e-3
    for given, part in ((["a", ""], "Piece 1 is empty"), ([LONG, LONG], "maximum context length")):
        refused = embedder.ask("/v1/embeddings", input=given, late_chunking=True)
        assert refused.status_code == 400
        assert part in refused.json()["detail"]


def test_forms(embedder: Kind) -> None:
    plain = np.array(rows(embedder.post("/jina/v1/embeddings", input=TEXTS)), np.float32)
    packed = rows(embedder.post("/v1/embeddings", input=TEXTS, embedding_type="base64"))
    assert_equal([np.frombuffer(base64.b64decode(row), "<f4") for row in packed], plain, BATCH_LIMIT)
    forms = rows(embedder.post("/v1/embeddings", input=TEXTS, embedding_type=["float", "ubinary", "binary"]))
    assert all(list(one) == ["float", "ubinary", "binary"] for one in forms)
    for name in ("ubinary", "binary"):
        bits = embedder.llm.embed(TEXTS, precision=name, output="numpy", use_tqdm=False)
        assert np.array_equal([one[name] for one in forms], bits)
    raw = rows(embedder.post("/jina/v1/embeddings", input=TEXTS, normalized=False))
    assert_equal(raw, embedder.llm.embed(TEXTS, normalize=False, output="numpy", use_tqdm=False), BATCH_LIMIT)


def test_vectors_of_tokens(embedder: Kind, classifier: Kind) -> None:
    asked = {"input": TEXTS, "return_multivector": True, "task": "retrieval.query", "normalized": True}
    data = embedder.post("/jina/v1/embeddings", **asked).json()["data"]
    how: dict[str, Any] = {"input_type": "retrieval.query", "normalize": True}
    expected = embedder.llm.encode(TEXTS, pooling_task="token_embed", **how, use_tqdm=False)
    for one, out in zip(data, expected, strict=True):
        assert_equal(one["embeddings"], np.asarray(out.outputs.data), BATCH_LIMIT)
    unknown = embedder.post("/jina/v1/embeddings", **asked | {"task": "text-matching"})
    assert unknown.headers["x-ignored-fields"] == "task"
    assert "no prompt was put before" in unknown.headers["warning"]
    refused = embedder.ask("/jina/v1/embeddings", **asked, embedding_type="binary")
    assert (refused.status_code, set(refused.json())) == (400, ERROR)
    assert classifier.ask("/jina/v1/embeddings", **asked).status_code == 400


def test_long_texts_are_refused_unless_the_request_says_otherwise(embedder: Kind) -> None:
    refused = embedder.ask("/jina/v1/embeddings", input=["a", LONG])
    assert (refused.status_code, refused.json()["code"]) == (400, "INPUT_TOKEN_LIMIT_EXCEEDED")
    assert embedder.post("/jina/v1/embeddings", input=["a", LONG], truncate=True).headers["x-truncated"] == "1"
    asked = {"query": "a", "documents": [LONG, "b"]}
    assert embedder.ask("/jina/v1/rerank", **asked).status_code == 400
    assert embedder.post("/jina/v1/rerank", **asked, truncate=True).headers["x-truncated"] == "1"


def test_rankings(cross_encoder: Kind) -> None:
    query, *texts = TEXTS
    expected = cross_encoder.llm.rerank(query, texts, top_n=2, use_tqdm=False)
    answer = cross_encoder.post("/jina/v1/rerank", query=query, documents=[texts[0], {"text": texts[1]}, *texts[2:]])
    found = answer.json()["results"]
    assert [one["index"] for one in found[:2]] == [one.index for one in expected]
    assert [one["relevance_score"] for one in found[:2]] == pytest.approx([one.score for one in expected], abs=2e-6)
    assert [one["document"]["text"] for one in found[:2]] == [one.document for one in expected]
    bare = cross_encoder.post("/jina/v1/rerank", query=query, documents=texts, top_n=2, return_documents=False)
    assert ["document" in one for one in bare.json()["results"]] == [False, False]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/jina/v1/embeddings", {"input": []}, 400, "INPUT_INVALID"),
        ("/jina/v1/embeddings", {"input": [{"image": "https://x/y.png"}]}, 400, "INPUT_INVALID"),
        ("/v1/embeddings", {"input": "a", "embedding_type": "int4"}, 400, "INPUT_INVALID"),
        ("/v1/embeddings", {"input": "a", "embedding_type": []}, 400, "INPUT_INVALID"),
        ("/v1/embeddings", {"input": "a", "task": "separation", "dimensions": 5}, 400, "INPUT_INVALID"),
        ("/jina/v1/embeddings", {"input": "a", "model": "other"}, 400, "INPUT_MODEL_NOT_FOUND"),
        ("/jina/v1/nothing", {"input": "a"}, 404, "RESOURCE_NOT_FOUND"),
    ],
)
def test_failures(embedder: Kind, path: str, body: dict[str, Any], status: int, code: str) -> None:
    refused = embedder.ask(path, **body)
    assert refused.status_code == status, refused.text
    assert set(refused.json()) == ERROR
    assert refused.json()["code"] == code
    assert refused.json()["request_id"] == refused.headers["x-request-id"]


def test_a_key_is_wanted(guarded: Server) -> None:
    url = f"{guarded.url}/jina/v1/embeddings"
    assert httpx.post(url, json={"input": "a"}).json()["code"] == "AUTH_INVALID_API_KEY"
    assert httpx.post(url, json={"input": "a"}, headers={"authorization": f"Bearer {KEY}"}).status_code == 200


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_told_as_jina_does(client: httpx.Client, name: str) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/jina/v1/embeddings", content=broken(name, "input"), headers=headers)
    assert response.status_code == 400
    assert set(response.json()) == ERROR
