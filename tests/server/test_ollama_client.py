"""Ollama's own client against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import httpx
import numpy as np
import ollama
import pytest

from support.rows import BATCH_LIMIT, assert_equal
from support.texts import edge_texts, short_texts

from .conftest import ALIAS, KEY, NAME, Kind
from .running import Server
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(4)]
LONG = edge_texts()[-1]


@pytest.fixture(params=["", "/ollama"])
def asked(embedder: Kind, request: pytest.FixtureRequest) -> Iterator[ollama.Client]:
    """The client at each address that it may be given."""
    with closing(ollama.Client(embedder.server.url + request.param)) as client:
        yield client


@pytest.mark.parametrize("name", [NAME, ALIAS, f"{NAME}:latest"])
def test_vectors(asked: ollama.Client, embedder: Kind, name: str) -> None:
    found = asked.embed(name, TEXTS)
    assert found.model == name
    assert_equal(found.embeddings, embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False), BATCH_LIMIT)
    assert found.prompt_eval_count == sum(embedder.llm.engine.tokenizer.count(text) for text in TEXTS)
    assert found.total_duration is not None
    assert found.total_duration > 0
    short = asked.embed(name, TEXTS[0], dimensions=8)
    assert np.shape(short.embeddings) == (1, 8)
    assert np.linalg.norm(short.embeddings[0]) == pytest.approx(1, abs=1e-5)


def test_the_old_route_does_not_normalise(asked: ollama.Client, embedder: Kind) -> None:
    raw = embedder.llm.embed(TEXTS[0], normalize=False, output="numpy", use_tqdm=False)
    assert abs(np.linalg.norm(raw) - 1) > 0.01
    assert_equal([asked.embeddings(NAME, TEXTS[0]).embedding], raw, BATCH_LIMIT)


def test_nothing_to_embed_says_that_the_model_is_there(asked: ollama.Client) -> None:
    assert asked.embed(NAME).embeddings == []
    assert asked.embed(NAME, "").embeddings == []
    assert asked.embed(NAME, []).embeddings == []
    assert asked.embeddings(NAME).embedding == []
    assert len(asked.embed(NAME, [""]).embeddings) == 1
    with pytest.raises(ollama.ResponseError, match="`other` does not exist") as missing:
        asked.embed("other")
    assert missing.value.status_code == 404


def test_long_texts(asked: ollama.Client, embedder: Kind) -> None:
    how = {"truncate_prompt_tokens": -1}
    whole = embedder.llm.embed(LONG, tokenization_kwargs=how, output="numpy", use_tqdm=False)
    assert_equal(asked.embed(NAME, LONG).embeddings, whole, BATCH_LIMIT)
    with pytest.raises(ollama.ResponseError, match="maximum context length") as refused:
        asked.embed(NAME, LONG, truncate=False)
    assert refused.value.status_code == 400
    narrow = asked.embed(NAME, LONG, options={"num_ctx": 9})
    assert narrow.prompt_eval_count == 9


def test_models(asked: ollama.Client, embedder: Kind) -> None:
    models = asked.list().models
    assert [one.model for one in models] == [f"{NAME}:latest", f"{ALIAS}:latest"]
    assert models[0].modified_at is not None
    assert models[0].modified_at < datetime.now(UTC)
    assert models[0].size == (embedder.folder / "model.safetensors").stat().st_size
    shown = asked.show(f"{NAME}:latest")
    assert shown.capabilities == ["embedding"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["bert.context_length"] == 70
    assert httpx.get(f"{embedder.server.url}/api/version").json()["version"]


def test_failures(classifier: Kind, guarded: Server) -> None:
    with closing(ollama.Client(classifier.server.url)) as client:
        with pytest.raises(ollama.ResponseError, match="classifier") as refused:
            client.embed("classifier", "a")
        assert refused.value.status_code == 400
    with closing(ollama.Client(guarded.url)) as client, pytest.raises(ollama.ResponseError, match="No valid API key"):
        client.list()
    with closing(ollama.Client(guarded.url, headers={"authorization": f"Bearer {KEY}"})) as client:
        assert client.list().models


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_told_as_ollama_does(client: httpx.Client, name: str) -> None:
    response = client.post("/api/embed", content=broken(name, "input"), headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert set(response.json()) == {"error"}
