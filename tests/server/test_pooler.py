"""What the user decided and what a request asks for, through a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from support.references import reference_vectors
from support.rows import BATCH_LIMIT, assert_equal
from support.sentence_folders import POOLING_MODES
from support.texts import short_texts

from .conftest import Kind
from .running import Server

if TYPE_CHECKING:
    from support.fixtures import TinySentence

TEXTS = short_texts(4)
OURS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "last")
ASKED = {"task": "token_embed", "pooling_type": "LAST", "max_embed_len": 9}


@pytest.fixture(scope="module")
def asked(tiny_sentence: TinySentence) -> Iterator[httpx.Client]:
    """A server whose user decided about pooling."""
    folder = tiny_sentence(pooling="mean", normalize=True)
    with (
        Server(folder, model_settings={"pooler_config": ASKED}, served_model_name=["asked"]) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client


def vectors(response: httpx.Response) -> np.ndarray[Any, Any]:
    assert response.status_code == 200, response.text
    return np.array([item["embedding"] for item in response.json()["data"]], np.float32)


def test_the_user_s_word_is_served_and_told(asked: httpx.Client, tiny_sentence: TinySentence) -> None:
    found = vectors(asked.post("/v1/embeddings", json={"input": ["a", "b c"]}))
    assert_equal(found, reference_vectors(tiny_sentence(pooling="lasttoken", normalize=True), ["a", "b c"]))
    decided = asked.get("/info").json()["cenote"]["models"][0]["recipe"]
    assert decided["pooling"] == {"value": "last", "source": "user"}
    assert decided["normalize"] == {"value": True, "source": "modules.json"}
    assert decided["default_task"] == {"value": "token_embed", "source": "user"}
    # Rows of tokens, which is the task that the user made the default one.
    (pooled,) = asked.post("/pooling", json={"input": ["a"]}).json()["data"]
    assert np.array(pooled["data"]).ndim == 2


def test_vectors_have_a_limit_of_their_own(asked: httpx.Client) -> None:
    long = {"input": "a b c d e f g h i j k l"}
    refused = asked.post("/v1/embeddings", json=long)
    assert refused.status_code == 400
    assert "9 tokens" in refused.json()["error"]["message"]
    assert asked.post("/pooling", json={**long, "task": "embed"}).status_code == 200
    cut = asked.post("/v1/embeddings", json={**long, "truncate_prompt_tokens": -1})
    assert cut.json()["usage"]["prompt_tokens"] == 9
    assert asked.post("/v1/embeddings", json={**long, "truncate_prompt_tokens": 10}).status_code == 400


@pytest.mark.parametrize(("mode", "ours"), list(zip(POOLING_MODES, OURS, strict=True)))
def test_a_request_names_its_pooling(embedder: Kind, mode: str, ours: str, tiny_sentence: TinySentence) -> None:
    found = vectors(embedder.post("/v1/embeddings", input=TEXTS, pooling=ours))
    assert_equal(found, reference_vectors(tiny_sentence(pooling=mode, normalize=True), TEXTS))
    (pooled,) = embedder.post("/pooling", input=TEXTS[:1], task="embed", pooling=ours).json()["data"]
    assert_equal([pooled["data"]], found[:1], BATCH_LIMIT)


def test_a_pooling_that_is_none_is_refused(embedder: Kind) -> None:
    response = embedder.ask("/v1/embeddings", input=TEXTS, pooling="median")
    assert response.status_code == 400
    assert "pooling" in response.json()["error"]["message"]
    for_tokens = embedder.ask("/pooling", input=TEXTS, task="token_embed", pooling="cls")
    assert for_tokens.status_code == 400
    assert "does not support ['pooling'] parameters" in for_tokens.json()["error"]["message"]


@pytest.mark.parametrize(
    ("input_type", "prompt"),
    [("search_query", "query: "), ("passage", "passage: "), ("document", ""), ("clustering \N{PILE OF POO}", "")],
)
def test_a_type_of_input_chooses_a_prompt(embedder: Kind, input_type: str, prompt: str) -> None:
    response = embedder.post("/v1/embeddings", input=TEXTS, input_type=input_type)
    assert_equal(vectors(response), reference_vectors(embedder.folder, TEXTS, prompt=prompt))
    is_unknown = input_type.startswith("clustering")
    assert ("input_type is not one that is known" in response.headers.get("warning", "")) == is_unknown
    assert ("input_type" in response.headers.get("x-ignored-fields", "")) == is_unknown


def test_an_index_can_tell_which_model_it_was_made_with(embedder: Kind) -> None:
    (entry, alias) = httpx.get(f"{embedder.server.url}/v1/models").json()["data"]
    assert entry["fingerprint"] == alias["fingerprint"] == embedder.llm.fingerprint
    assert len(entry["fingerprint"]) == 32
    for path in ("/v1/embeddings", "/pooling"):
        assert embedder.post(path, input=TEXTS).headers["x-model-fingerprint"] == entry["fingerprint"]
