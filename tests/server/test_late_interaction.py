"""A late-interaction model behind a real server: its token vectors, its scores and its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import numpy as np
import pytest

from cenote.types import InputType
from support.late_folders import multi_vector
from support.rows import BATCH_LIMIT, assert_equal

from .conftest import Kind, serving

QUERY = "Which fox is red?"
DOCUMENTS = ["The fox, which is red, sleeps.", "A grey one; it runs.", "!", "fox " * 12]


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kind]:
    folder = multi_vector(
        tmp_path_factory.mktemp("late") / "model",
        mask={"skiplist_words": [",", ".", "?", "!", ";"]},
        transformer={
            "query_expansion": {"strategy": "fixed", "attend": False, "length": 14},
            "document_length": 20,
        },
        prompts={"query": "[Q] ", "document": "[D] "},
    )
    yield from serving("colbert", folder)


def rows_of(response: httpx.Response) -> list[np.ndarray[Any, Any]]:
    return [np.array(item["data"], np.float32) for item in response.json()["data"]]


def offline(colbert: Kind, role: InputType | None, **more: Any) -> list[np.ndarray[Any, Any]]:
    outs = colbert.llm.encode(DOCUMENTS, pooling_task="token_embed", input_type=role, use_tqdm=False, **more)
    return [out.outputs.data.numpy() for out in outs]


@pytest.mark.parametrize("role", ["query", "document", None])
def test_token_vectors_equal_the_offline_api(colbert: Kind, role: InputType | None) -> None:
    response = colbert.post("/pooling", input=DOCUMENTS, input_type=role)
    assert "x-ignored-fields" not in response.headers
    assert_equal(rows_of(response), offline(colbert, role), BATCH_LIMIT)


def test_cut_texts_are_counted(colbert: Kind) -> None:
    assert colbert.post("/pooling", input=["a", "fox " * 40], input_type="document").headers["x-truncated"] == "1"


def test_pooled_token_vectors_equal_the_offline_api(colbert: Kind) -> None:
    rows = rows_of(colbert.post("/pooling", input=DOCUMENTS, input_type="document", pool_factor=2))
    assert_equal(rows, offline(colbert, "document", pool_factor=2), BATCH_LIMIT)
    assert len(rows[0]) < len(offline(colbert, "document")[0])


def test_scores_and_rankings_equal_the_offline_api(colbert: Kind) -> None:
    expected = [out.outputs.score for out in colbert.llm.score(QUERY, DOCUMENTS, use_tqdm=False)]
    found = [item["score"] for item in colbert.post("/score", queries=QUERY, documents=DOCUMENTS).json()["data"]]
    assert_equal([found], [expected], BATCH_LIMIT)
    order = np.argsort(-np.array(expected), kind="stable").tolist()
    results = colbert.post("/rerank", query=QUERY, documents=DOCUMENTS).json()["results"]
    assert [result["index"] for result in results] == order
    with cohere.ClientV2("any", base_url=colbert.server.url) as client:
        ranked = client.rerank(model="colbert", query=QUERY, documents=DOCUMENTS).results
    assert [result.index for result in ranked] == order


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": "a", "pool_factor": 0.5}, "pool_factor=0.5"),
        ({"input": "a", "task": "embed"}, "Unsupported task: 'embed'"),
        ({"input": ["a", "fox " * 70]}, "Input 1 has"),
    ],
)
def test_what_cannot_be_is_refused(colbert: Kind, body: dict[str, Any], message: str) -> None:
    response = colbert.ask("/pooling", **body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
