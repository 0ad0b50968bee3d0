"""A model that `transformers` runs, behind a real server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from support.foreign import foreign
from support.references import worst_error
from support.rows import BATCH_LIMIT

from .conftest import Kind, serving

TEXTS = ["The fox, which is red, sleeps.", "a fox", "a cat", "A grey one; it runs."]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kind]:
    yield from serving("gpt2", foreign("gpt2", tmp_path_factory.mktemp("foreign")))


def test_vectors_and_rows_of_tokens_are_those_of_python(gpt2: Kind) -> None:
    answer = gpt2.post("/v1/embeddings", input=TEXTS).json()
    served = np.array([item["embedding"] for item in answer["data"]], np.float32)
    assert worst_error(served, gpt2.llm.embed(TEXTS, output="numpy")) <= BATCH_LIMIT
    rows = gpt2.post("/pooling", input=TEXTS[:1], task="token_embed").json()["data"][0]["data"]
    (ours,) = gpt2.llm.encode(TEXTS[:1], pooling_task="token_embed")
    assert worst_error(rows, ours.outputs.data) <= BATCH_LIMIT


def test_the_server_says_who_computes(gpt2: Kind) -> None:
    assert '"model_impl":{"value":"transformers"' in httpx.get(f"{gpt2.server.url}/info").text.replace(" ", "")
