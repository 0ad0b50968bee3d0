"""The dialect of the llama.cpp server: what each of its routes gives, and how it tells failures."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from support.rows import BATCH_LIMIT, REFERENCE_LIMIT, assert_equal
from support.texts import edge_texts, short_texts

from .conftest import Kind, serving
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(5)]
LONG = edge_texts()[-1]


@pytest.fixture(scope="module")
def raw(raw_folder: Any) -> Any:
    """A model whose vectors have lengths of their own."""
    yield from serving("raw", raw_folder)


@pytest.mark.parametrize("path", ["/embedding", "/embeddings", "/llamacpp/embedding", "/llamacpp/embeddings"])
def test_vectors(raw: Kind, path: str) -> None:
    answer = raw.post(path, content=TEXTS).json()
    assert [one["index"] for one in answer] == list(range(len(TEXTS)))
    expected = raw.llm.embed(TEXTS, normalize=True, output="numpy", use_tqdm=False)
    assert_equal([row for one in answer for row in one["embedding"]], expected, BATCH_LIMIT)
    ids = raw.llm.engine.tokenizer.ids_of(TEXTS[0], False)
    alone = raw.post(path, content=ids).json()
    assert_equal(alone[0]["embedding"], expected[:1], BATCH_LIMIT)


@pytest.mark.parametrize("order", [-1, 0, 1, 3, 1000])
def test_norms(raw: Kind, order: int) -> None:
    answer = raw.post("/embedding", content=TEXTS, embd_normalize=order).json()
    rows = raw.llm.embed(TEXTS, normalize=False, output="numpy", use_tqdm=False).astype(np.float64)
    if order > 0:
        rows /= np.linalg.norm(rows / np.abs(rows).max(), ord=order, axis=1, keepdims=True) * np.abs(rows).max()
    elif order == 0:
        rows /= np.abs(rows).max(axis=1, keepdims=True) / 32760
    assert_equal([row for one in answer for row in one["embedding"]], rows, REFERENCE_LIMIT)


def test_long_texts_are_refused(raw: Kind) -> None:
    refused = raw.ask("/embedding", content=["a", LONG])
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert set(error) == {"code", "message", "type"}


@pytest.mark.parametrize("path", ["/reranking", "/v1/reranking", "/llamacpp/rerank", "/llamacpp/v1/rerank"])
def test_rankings(cross_encoder: Kind, path: str) -> None:
    query, *texts = TEXTS
    expected = cross_encoder.llm.rerank(query, texts, top_n=2, use_tqdm=False)
    found = cross_encoder.post(path, query=query, documents=texts, top_n=2).json()["results"]
    assert [one["index"] for one in found] == [one.index for one in expected]
    assert [one["relevance_score"] for one in found] == pytest.approx([one.score for one in expected], abs=2e-6)
    other = cross_encoder.post(path, query=query, texts=texts, top_n=2).json()
    assert [one["index"] for one in other] == [one.index for one in expected]
    assert [one["score"] for one in other] == pytest.approx([one.score for one in expected], abs=2e-6)
    assert cross_encoder.ask(path, query=query, documents="a").status_code == 400


def test_tokens(embedder: Kind) -> None:
    text = "Ünïcode wörds, ok"
    tokenizer = embedder.llm.engine.tokenizer
    for prefix in ("", "/llamacpp"):
        bare = embedder.post(f"{prefix}/tokenize", content=text).json()["tokens"]
        assert bare == tokenizer.ids_of(text, False)
        whole = embedder.post(f"{prefix}/tokenize", content=text, add_special=True, with_pieces=True).json()["tokens"]
        assert [one["id"] for one in whole] == tokenizer.ids_of(text, True)
        assert [one["piece"] for one in whole] == tokenizer.token_strings([one["id"] for one in whole])
    assert embedder.post("/llamacpp/detokenize", tokens=bare).json() == {"content": tokenizer.decode(bare)}
    assert embedder.post("/detokenize", tokens=bare).json() == {"prompt": tokenizer.decode(bare)}


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/embedding", {"content": []}, 400, "invalid_request_error"),
        ("/embedding", {"content": "a", "embd_normalize": -2}, 400, "invalid_request_error"),
        ("/embedding", {"content": [10**6]}, 400, "invalid_request_error"),
        ("/embedding", {"content": "a", "model": "other"}, 404, "not_found_error"),
        ("/llamacpp/nothing", {}, 404, "not_found_error"),
        ("/llamacpp/detokenize", {"tokens": [10**6]}, 400, "invalid_request_error"),
    ],
)
def test_failures(embedder: Kind, path: str, body: dict[str, Any], status: int, kind: str) -> None:
    refused = embedder.ask(path, **body)
    assert refused.status_code == status, refused.text
    assert refused.json()["error"]["type"] == kind


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_told_as_llama_cpp_does(client: httpx.Client, name: str) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/embedding", content=broken(name, "content"), headers=headers)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"code", "message", "type"}
