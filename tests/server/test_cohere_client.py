"""Cohere's official client, both versions, against a real server."""

from __future__ import annotations

import cohere
import pytest
from cohere.core.api_error import ApiError

from support.texts import short_texts

from .conftest import Kind

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
    assert "The model `other` does not exist." in missing.value.body["error"]["message"]
    with cohere.Client("any", base_url=classifier.server.url) as old, pytest.raises(ApiError) as unable:
        old.rerank(model="classifier", query="a", documents=["b"])
    assert unable.value.status_code == 404
