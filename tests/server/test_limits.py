"""How many inputs a request may have: refused before any work, as each dialect tells it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.fixtures import Tiny

from .conftest import LABELS
from .running import Server

MOST = 3
FOUR = ["a", "b", "c", "d"]
EMBEDDER: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/embeddings", {"input": FOUR}, 400),
    ("/v1/embeddings", {"input": [[1]] * 4, "add_special_tokens": False}, 400),
    ("/pooling", {"input": FOUR}, 400),
    ("/score", {"text_1": "a", "text_2": FOUR}, 400),
    ("/score", {"text_1": FOUR, "text_2": FOUR}, 400),
    ("/rerank", {"query": "a", "documents": FOUR}, 400),
    ("/v1/embed", {"texts": FOUR}, 400),
    ("/v2/embed", {"inputs": [{"content": one} for one in FOUR]}, 400),
    ("/cohere/v2/rerank", {"query": "a", "documents": FOUR}, 400),
    ("/v1/classify", {"inputs": FOUR, "examples": [{"text": "a", "label": one} for one in "ab"]}, 400),
    ("/embed", {"inputs": FOUR}, 422),
    ("/rerank", {"query": "a", "texts": FOUR}, 422),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": FOUR}}, 422),
    ("/tei/tokenize", {"inputs": FOUR}, 422),
    ("/decode", {"ids": [[1]] * 4}, 422),
    ("/vertex", {"instances": [{"inputs": "a"}] * 4}, 422),
    ("/", {"inputs": FOUR}, 422),
    ("/api/embed", {"model": "few", "input": FOUR}, 400),
    ("/jina/v1/embeddings", {"input": FOUR}, 400),
    ("/jina/v1/embeddings", {"input": FOUR, "late_chunking": True}, 400),
    ("/jina/v1/embeddings", {"input": FOUR, "return_multivector": True}, 400),
    ("/voyage/v1/embeddings", {"input": FOUR}, 400),
    ("/v1/contextualizedembeddings", {"inputs": [["a", "b"], ["c", "d"]]}, 400),
    ("/voyage/v1/rerank", {"query": "a", "documents": FOUR}, 400),
    ("/mixedbread/v1/embeddings", {"input": FOUR}, 400),
    ("/v1/reranking", {"query": "a", "input": FOUR}, 400),
    ("/embeddings", {"input": FOUR}, 400),
    ("/infinity/rerank", {"query": "a", "documents": FOUR}, 400),
    ("/embedding", {"content": FOUR}, 400),
]
CLASSIFIER: list[tuple[str, dict[str, Any], int]] = [
    ("/classify", {"input": FOUR}, 400),
    ("/predict", {"inputs": [[one] for one in FOUR]}, 422),
    ("/infinity/classify", {"input": FOUR}, 400),
    ("/", {"inputs": ["a", "b"], "parameters": {"candidate_labels": ["c", "d"]}}, 422),
    ("/", {"inputs": ["a", "b"], "parameters": {"candidate_labels": "c,d"}}, 422),
]


@pytest.fixture(scope="module")
def few(folder: Path) -> Iterator[Server]:
    """An embedder that takes few inputs a request."""
    with Server(folder, served_model_name=["few"], max_inputs=MOST) as running:
        yield running


@pytest.fixture(scope="module")
def few_classes(tiny: Tiny) -> Iterator[Server]:
    """A classifier that takes few."""
    folder = tiny("roberta", head="sequence_classification", id2label=LABELS)
    with Server(folder, max_inputs=MOST) as running:
        yield running


def calls_of(server: Server) -> list[str]:
    """What the server says about the calls that its model got."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return [line for line in lines if line.startswith("cenote_requests_total")]


def check_refused(server: Server, path: str, body: dict[str, Any], status: int) -> None:
    before = calls_of(server)
    response = httpx.post(server.url + path, json=body, timeout=60)
    assert response.status_code == status, response.text
    assert "has 4 inputs. At most 3." in response.text
    assert "--max-inputs" in response.text
    assert calls_of(server) == before


@pytest.mark.parametrize(("path", "body", "status"), EMBEDDER, ids=lambda value: str(value)[:40])
def test_more_inputs_than_allowed(few: Server, path: str, body: dict[str, Any], status: int) -> None:
    check_refused(few, path, body, status)


@pytest.mark.parametrize(("path", "body", "status"), CLASSIFIER, ids=lambda value: str(value)[:40])
def test_more_texts_to_classify(few_classes: Server, path: str, body: dict[str, Any], status: int) -> None:
    check_refused(few_classes, path, body, status)


def test_as_many_as_allowed_and_long_lists_of_ids_of_one(few: Server) -> None:
    for body in ({"input": FOUR[:MOST]}, {"input": [2] * 9, "add_special_tokens": False}):
        assert httpx.post(f"{few.url}/v1/embeddings", json=body, timeout=60).status_code == 200
    assert httpx.get(f"{few.url}/info").json()["max_client_batch_size"] == MOST
