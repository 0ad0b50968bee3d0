"""The dialect of Voyage: what each of its routes gives, and how it tells failures."""

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
CHUNKS = [text[:18] for text in TEXTS]
LONG = edge_texts()[-1]
DTYPES = {"float": "<f4", "int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}
PRECISIONS: dict[str, Any] = {**{name: name for name in DTYPES}, "float": "float32"}


def rows(data: list[dict[str, Any]]) -> list[Any]:
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("path", ["/voyage/v1/embeddings", "/v1/embeddings"])
def test_vectors_in_every_form(embedder: Kind, path: str, dtype: str) -> None:
    body = {"input": TEXTS, "input_type": "query", "output_dtype": dtype, "output_dimension": 8, "truncation": True}
    answer = embedder.post(path, **body)
    packed = embedder.post(path, **body, encoding_format="base64").json()["data"]
    how: dict[str, Any] = {"input_type": "query", "dimensions": 8, "precision": PRECISIONS[dtype]}
    expected = embedder.llm.embed(TEXTS, **how, output="numpy", use_tqdm=False)
    read = [np.frombuffer(base64.b64decode(row), DTYPES[dtype]) for row in rows(packed)]
    for found in (rows(answer.json()["data"]), read):
        if dtype == "float":
            assert_equal(found, expected, BATCH_LIMIT)
        else:
            # A value at the border of two steps may fall to either side in another batch.
            assert np.abs(np.array(found, int) - expected).max() <= (1 if "int" in dtype else 0)
    assert ("warning" in answer.headers) == ("int" in dtype)
    assert answer.json()["usage"]["total_tokens"] > len(TEXTS)
    assert answer.json()["model"]


def test_long_texts_are_cut_unless_the_request_says_otherwise(embedder: Kind) -> None:
    assert embedder.post("/voyage/v1/embeddings", input=LONG).headers["x-truncated"] == "1"
    refused = embedder.ask("/voyage/v1/embeddings", input=LONG, truncation=False)
    assert (refused.status_code, set(refused.json())) == (400, {"detail"})


def test_chunks_know_their_document(embedder: Kind) -> None:
    documents = [CHUNKS[:3], CHUNKS[3:]]
    answer = embedder.post("/v1/contextualizedembeddings", inputs=documents, input_type="document").json()
    for one, chunks in zip(answer["data"], documents, strict=True):
        assert_equal(rows(one["data"]), embedder.llm.embed_chunks(chunks, input_type="document"), BATCH_LIMIT)
    body = {"inputs": documents, "output_dtype": "ubinary", "encoding_format": "base64"}
    bits = embedder.post("/voyage/v1/contextualizedembeddings", **body).json()["data"]
    whole = np.packbits(embedder.llm.embed_chunks(documents[1]) > 0, axis=-1)
    read = [np.frombuffer(base64.b64decode(row), "u1") for row in rows(bits[1]["data"])]
    assert np.array_equal(read, whole)


@pytest.mark.parametrize("path", ["/voyage/v1/rerank", "/v1/rerank"])
def test_rankings(cross_encoder: Kind, path: str) -> None:
    query, *texts = TEXTS
    expected = cross_encoder.llm.rerank(query, texts, top_n=2, use_tqdm=False)
    answer = cross_encoder.post(path, query=query, documents=texts, top_k=2).json()
    assert [one["index"] for one in answer["data"]] == [one.index for one in expected]
    scores = [one["relevance_score"] for one in answer["data"]]
    assert scores == pytest.approx([one.score for one in expected], abs=2e-6)
    assert not any("document" in one for one in answer["data"])
    body = {"query": query, "documents": [LONG, "a"], "truncation": True}
    cut = cross_encoder.post(path, **body, return_documents=True)
    assert cut.headers["x-truncated"] == "1"
    assert {one["document"] for one in cut.json()["data"]} == {LONG, "a"}
    assert cross_encoder.ask(path, **{**body, "truncation": False}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "part"),
    [
        ("/voyage/v1/embeddings", {"input": []}, "one or more"),
        ("/voyage/v1/embeddings", {"input": "a", "output_dimension": 5}, "Matryoshka"),
        ("/voyage/v1/embeddings", {"input": "a", "input_type": "passage"}, "allowed are query, document"),
        ("/voyage/v1/embeddings", {"input": "a", "model": "other"}, "does not exist"),
        ("/v1/embeddings", {"input": "a", "output_dtype": "int4"}, "allowed are float, int8"),
        ("/v1/contextualizedembeddings", {"inputs": []}, "One chunk or more"),
        ("/v1/contextualizedembeddings", {"inputs": [["a"], []]}, "One chunk or more"),
        ("/v1/contextualizedembeddings", {"inputs": [["a", ""]]}, "Piece 1 is empty"),
        ("/v1/contextualizedembeddings", {"inputs": [["a"], ["b", " "]]}, "Piece 1 of document 1 has no tokens"),
        ("/v1/contextualizedembeddings", {"inputs": [["a"]], "enable_auto_chunking": True}, "enable_auto_chunking"),
        ("/voyage/v1/rerank", {"query": "a", "documents": []}, ""),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_k": 0}, ">= 1"),
    ],
)
def test_failures(embedder: Kind, path: str, body: dict[str, Any], part: str) -> None:
    refused = embedder.ask(path, **body)
    assert refused.status_code == 400, refused.text
    assert set(refused.json()) == {"detail"}
    assert part in refused.json()["detail"]


def test_chunks_that_are_not_to_be_made_are_no_wish(embedder: Kind) -> None:
    body = {"inputs": [["a"]], "enable_auto_chunking": False, "chunk_size": None}
    assert len(embedder.post("/v1/contextualizedembeddings", **body).json()["data"]) == 1


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_told_as_voyage_does(client: httpx.Client, name: str) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/voyage/v1/embeddings", content=broken(name, "input"), headers=headers)
    assert response.status_code == 400
    assert set(response.json()) == {"detail"}
