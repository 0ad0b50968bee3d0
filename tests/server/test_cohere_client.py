"""Cohere's official client, both versions, against a real server."""

from __future__ import annotations

import cohere
import httpx
import pytest
from cohere.core.api_error import ApiError
from cohere.errors import UnauthorizedError

from support.texts import short_texts

from .conftest import ALIAS, KEY, NAME, Kind
from .running import Server
from .test_bodies import BROKEN, broken

QUERY, *DOCUMENTS = (text[:70] for text in short_texts(8))


def test_version_2(cross_encoder: Kind) -> None:
    with cohere.ClientV2("any", base_url=cross_encoder.server.url) as client:
        answer = client.rerank(model="cross-encoder", query=QUERY, documents=DOCUMENTS, top_n=3, max_tokens_per_doc=9)
    expected = cross_encoder.llm.rerank(QUERY, DOCUMENTS, top_n=3, max_tokens_per_doc=9, use_tqdm=False)
    assert [result.index for result in answer.results] == [found.index for found in expected]
    for result, found in zip(answer.results, expected, strict=True):
        assert result.relevance_score == pytest.approx(found.score, abs=2e-6)
    assert answer.meta is not None
    assert answer.meta.billed_units is not None
    assert answer.meta.billed_units.search_units == 1
    assert answer.id


def test_version_1(cross_encoder: Kind) -> None:
    forms: list[str | dict[str, str]] = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, *DOCUMENTS[2:]]
    with cohere.Client("any", base_url=cross_encoder.server.url) as client:
        answer = client.rerank(model="cross-encoder", query=QUERY, documents=forms, return_documents=True)
        bare = client.rerank(model="cross-encoder", query=QUERY, documents=DOCUMENTS, return_documents=False, top_n=2)
    expected = cross_encoder.llm.rerank(QUERY, DOCUMENTS, use_tqdm=False)
    assert [result.index for result in answer.results] == [found.index for found in expected]
    assert [result.document.text for result in answer.results if result.document] == [one.document for one in expected]
    assert [result.document for result in bare.results] == [None, None]


def test_errors_become_the_clients_exceptions(cross_encoder: Kind, classifier: Kind) -> None:
    with cohere.ClientV2("any", base_url=cross_encoder.server.url) as client, pytest.raises(ApiError) as missing:
        client.rerank(model="other", query="a", documents=["b"])
    assert missing.value.status_code == 404
    assert "The model `other` does not exist." in missing.value.body["message"]
    assert missing.value.headers is not None
    assert missing.value.body["id"] == missing.value.headers["x-request-id"]
    with cohere.Client("any", base_url=classifier.server.url) as old, pytest.raises(ApiError) as unable:
        old.rerank(model="classifier", query="a", documents=["b"])
    assert unable.value.status_code == 404


def test_version_2_gives_no_documents_back(cross_encoder: Kind) -> None:
    body = {"query": "a", "documents": ["b", "c"]}
    own = cross_encoder.post("/cohere/v2/rerank", **body).json()
    shared = cross_encoder.post("/v2/rerank", **body).json()
    assert not any("document" in one for one in own["results"])
    assert all("document" in one for one in shared["results"])
    assert [one["relevance_score"] for one in own["results"]] == [one["relevance_score"] for one in shared["results"]]


def test_long_documents_are_cut_as_cohere_does(cross_encoder: Kind) -> None:
    query, documents = "a", ["b " * 500]
    assert cross_encoder.ask("/v2/rerank", query=query, documents=documents).status_code == 400
    assert cross_encoder.post("/cohere/v2/rerank", query=query, documents=documents).headers["x-truncated"] == "1"


@pytest.mark.parametrize("prefix", ["", "/cohere"])
def test_tokens(embedder: Kind, prefix: str) -> None:
    text = short_texts(1)[0]
    with cohere.Client("any", base_url=embedder.server.url + prefix) as client:
        whole = client.tokenize(text=text, model=embedder.name, offline=False)
        empty = client.tokenize(text="", model=embedder.name, offline=False)
        back = client.detokenize(tokens=whole.tokens, model=embedder.name, offline=False)
    tokenizer = embedder.llm.engine.tokenizer
    assert whole.tokens == tokenizer.ids_of(text, False)
    assert whole.token_strings == tokenizer.token_strings(whole.tokens)
    assert back.text == tokenizer.decode(whole.tokens)
    assert empty.tokens == []


def test_models_and_keys(embedder: Kind, cross_encoder: Kind, guarded: Server) -> None:
    with cohere.Client("any", base_url=embedder.server.url) as client:
        listed = client.models.list().models
        one = client.models.get(embedder.name)
    assert [model.name for model in listed] == [NAME, ALIAS]
    assert one.endpoints == ["embed", "classify", "rerank"]
    assert one.context_length == 70
    with cohere.Client("any", base_url=cross_encoder.server.url) as client:
        assert client.models.get("cross-encoder").endpoints == ["classify", "rerank"]
        with pytest.raises(ApiError) as missing:
            client.models.get("other")
    assert (missing.value.status_code, set(missing.value.body)) == (404, {"message", "id"})
    with cohere.Client("wrong", base_url=guarded.url) as client, pytest.raises(UnauthorizedError) as refused:
        client.models.list()
    assert set(refused.value.body) == {"message", "id"}
    path, headers = f"{guarded.url}/v1/check-api-key", {"authorization": f"Bearer {KEY}"}
    assert httpx.post(path, headers=headers).json() == {"valid": True}
    assert set(httpx.post(path).json()) == {"message", "id"}


FIELDS = {"/v1/embed": "texts", "/v2/embed": "texts", "/v1/classify": "inputs", "/v1/tokenize": "text"}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("path", FIELDS)
def test_broken_bodies_are_told_as_cohere_does(client: httpx.Client, path: str, name: str) -> None:
    response = client.post(path, content=broken(name, FIELDS[path]), headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert set(response.json()) == {"message", "id"}
