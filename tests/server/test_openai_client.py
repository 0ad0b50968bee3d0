"""The official client, sync and async, against a real server."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from support.references import reference_vectors
from support.texts import short_texts

from .conftest import ALIAS, KEY, NAME
from .running import Server

TEXTS = short_texts(5)


def rows_of(server: Server, **chosen: Any) -> Any:
    """What the client gives back as vectors, whatever form they have."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
        answer = client.embeddings.create(model=NAME, input=TEXTS, **chosen)
    assert answer.usage.total_tokens > 0
    assert answer._request_id
    return [item.embedding for item in answer.data]


def test_vectors_in_every_encoding(server: Server, folder: Path) -> None:
    reference = reference_vectors(folder, TEXTS)
    # Without an encoding the client asks for base64 and decodes it.
    default, numbers = rows_of(server), rows_of(server, encoding_format="float")
    encoded = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows_of(server, encoding_format="base64")]
    for rows in (default, numbers, encoded):
        assert np.abs(np.array(rows, np.float32) - reference).max() <= 1e-5 * np.abs(reference).max()


async def test_many_at_once_do_not_mix(server: Server) -> None:
    texts = short_texts(32)
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
        whole = await client.embeddings.create(model=ALIAS, input=texts)
        alone = await asyncio.gather(*(client.embeddings.create(model=ALIAS, input=text) for text in texts))
    for together, single in zip(whole.data, alone, strict=True):
        np.testing.assert_allclose(together.embedding, single.data[0].embedding, atol=2e-6)


def test_models(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key="any") as client:
        assert [model.id for model in client.models.list()] == [NAME, ALIAS]
        model = client.models.retrieve(ALIAS)
    assert (model.id, model.object) == (ALIAS, "model")
    assert model.max_model_len == 70  # type: ignore[attr-defined]


def test_names_with_slashes_can_be_asked_for(server: Server) -> None:
    assert httpx.get(f"{server.url}/v1/models/{NAME}").json()["id"] == NAME


def test_errors_become_the_clients_exceptions(server: Server, guarded: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.embeddings.create(model="other", input="a")
        with pytest.raises(openai.BadRequestError) as bad:
            client.embeddings.create(model=NAME, input="a", dimensions=5)
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")
    assert "The model `other` does not exist." in str(missing.value)
    assert bad.value.param == "dimensions"
    with (
        openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.embeddings.create(model="raw", input="a")
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=KEY) as client:
        assert client.embeddings.create(model="raw", input="a").data
