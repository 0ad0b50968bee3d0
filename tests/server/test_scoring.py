"""`/score` and `/rerank` through real servers: the offline API's numbers under every name, and one order."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from cenote import PoolingParams
from support.texts import edge_texts, short_texts

from .conftest import Kind

QUERY, *DOCUMENTS = (text[:70] for text in short_texts(6))
SIDES = [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")]
SCORERS = ["cross_encoder", "embedder"]
RERANKS = ["/rerank", "/v1/rerank", "/v2/rerank", "/vllm/rerank"]
LONG = edge_texts()[-1]


def scores_of(response: httpx.Response) -> list[float]:
    items = response.json()["data"]
    assert [(item["index"], item["object"]) for item in items] == [(index, "score") for index in range(len(items))]
    return [item["score"] for item in items]


def offline(kind: Kind, first: Any, second: Any, **options: Any) -> list[float]:
    return [output.outputs.score for output in kind.llm.score(first, second, use_tqdm=False, **options)]


def test_equal_to_sentence_transformers(cross_encoder: Kind) -> None:
    reference = CrossEncoder(str(cross_encoder.folder), device="cpu").predict([(QUERY, one) for one in DOCUMENTS])
    ours = scores_of(cross_encoder.post("/score", queries=QUERY, documents=DOCUMENTS))
    np.testing.assert_allclose(ours, reference, rtol=1e-5)


@pytest.mark.parametrize("path", ["/score", "/v1/score", "/vllm/v1/score"])
@pytest.mark.parametrize(("first", "second"), SIDES)
@pytest.mark.parametrize("kind", SCORERS, indirect=True)
def test_every_name_equals_the_offline_api(kind: Kind, first: str, second: str, path: str) -> None:
    response = kind.post(path, **{first: QUERY, second: DOCUMENTS})
    np.testing.assert_allclose(scores_of(response), offline(kind, QUERY, DOCUMENTS), atol=2e-6)
    body = response.json()
    assert body["id"] == f"score-{response.headers['x-request-id']}"
    assert (body["object"], body["model"]) == ("list", kind.name)


@pytest.mark.parametrize("kind", SCORERS, indirect=True)
@pytest.mark.parametrize(
    ("first", "second"),
    [(QUERY, DOCUMENTS[0]), ([QUERY], DOCUMENTS), (DOCUMENTS, DOCUMENTS[::-1]), (["", QUERY], [QUERY, ""])],
)
def test_every_number_of_texts(kind: Kind, first: Any, second: Any) -> None:
    ours = scores_of(kind.post("/score", text_1=first, text_2=second))
    np.testing.assert_allclose(ours, offline(kind, first, second), atol=2e-6)


def test_late_interaction_can_be_asked_for(embedder: Kind) -> None:
    ours = scores_of(embedder.post("/score", text_1=QUERY, text_2=DOCUMENTS, score_type="late-interaction"))
    expected = offline(embedder, QUERY, DOCUMENTS, score_type="late-interaction")
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
    assert min(ours) > 1


def test_options_of_scores(cross_encoder: Kind) -> None:
    raw = scores_of(cross_encoder.post("/score", text_1=QUERY, text_2=DOCUMENTS, use_activation=False))
    np.testing.assert_allclose(raw, offline(cross_encoder, QUERY, DOCUMENTS, use_activation=False), atol=2e-6)
    limits = {"max_tokens_per_query": 3, "max_tokens_per_doc": 5}
    cut = scores_of(cross_encoder.post("/score", text_1=QUERY, text_2=DOCUMENTS, **limits))
    params = PoolingParams(extra_kwargs=limits)
    np.testing.assert_allclose(cut, offline(cross_encoder, QUERY, DOCUMENTS, pooling_params=params), atol=2e-6)
    assert (
        np.abs(np.subtract(cut, scores_of(cross_encoder.post("/score", text_1=QUERY, text_2=DOCUMENTS)))).max() > 1e-4
    )


def test_long_pairs_are_refused_or_cut(cross_encoder: Kind) -> None:
    refused = cross_encoder.ask("/score", text_1=QUERY, text_2=["short", LONG])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input_tokens")
    cut = cross_encoder.post("/score", text_1=QUERY, text_2=["short", LONG], truncate_prompt_tokens=40)
    expected = offline(cross_encoder, QUERY, ["short", LONG], tokenization_kwargs={"truncate_prompt_tokens": 40})
    np.testing.assert_allclose(scores_of(cut), expected, atol=2e-6)
    assert cut.headers["x-truncated"] == "1"


@pytest.mark.parametrize("path", RERANKS)
@pytest.mark.parametrize("kind", SCORERS, indirect=True)
def test_rerank_equals_the_offline_api(kind: Kind, path: str) -> None:
    body = kind.post(path, query=QUERY, documents=DOCUMENTS).json()
    expected = kind.llm.rerank(QUERY, DOCUMENTS, use_tqdm=False)
    assert [result["index"] for result in body["results"]] == [found.index for found in expected]
    for result, found in zip(body["results"], expected, strict=True):
        assert result["relevance_score"] == pytest.approx(found.score, abs=2e-6)
        assert result["document"] == {"text": found.document, "multi_modal": None}
    num_tokens = body["usage"]["total_tokens"]
    assert body["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert body["meta"] == {
        "api_version": {"version": "2"},
        "billed_units": {"search_units": 1},
        "tokens": {"input_tokens": num_tokens},
    }
    assert (body["object"], body["model"], body["id"][:6]) == ("rerank", kind.name, "score-")


@pytest.mark.parametrize(("top_n", "num"), [(None, 5), (0, 5), (2, 2), (99, 5)])
def test_top_n(cross_encoder: Kind, top_n: int | None, num: int) -> None:
    whole = cross_encoder.post("/rerank", query=QUERY, documents=DOCUMENTS).json()["results"]
    kept = cross_encoder.post("/rerank", query=QUERY, documents=DOCUMENTS, top_n=top_n).json()["results"]
    assert [result["index"] for result in kept] == [result["index"] for result in whole[:num]]


def test_ties_keep_the_order_of_the_request(cross_encoder: Kind) -> None:
    results = cross_encoder.post("/rerank", query=QUERY, documents=["same", DOCUMENTS[0], "same", "same"]).json()
    places = [result["index"] for result in results["results"] if result["document"]["text"] == "same"]
    assert places == [0, 2, 3]


def test_documents_in_every_form(cross_encoder: Kind) -> None:
    parts = [{"type": "text", "text": DOCUMENTS[0][:9]}, {"type": "text", "text": DOCUMENTS[0][9:]}]
    forms = [DOCUMENTS[0], {"text": DOCUMENTS[0]}, {"content": parts}, {"content": DOCUMENTS[0]}]
    results = cross_encoder.post("/rerank", query={"text": QUERY}, documents=forms).json()["results"]
    assert len({result["relevance_score"] for result in results}) == 1
    assert {result["document"]["text"] for result in results} == {DOCUMENTS[0]}
    bare = cross_encoder.post("/rerank", query=QUERY, documents=DOCUMENTS[0], return_documents=False).json()["results"]
    assert bare == [{"index": 0, "relevance_score": pytest.approx(results[0]["relevance_score"], abs=2e-6)}]


def test_a_query_that_runs_once_counts_once(embedder: Kind) -> None:
    usage = embedder.post("/rerank", query=QUERY, documents=DOCUMENTS).json()["usage"]
    assert usage["prompt_tokens"] == sum(map(embedder.llm.engine.tokenizer.count, [QUERY, *DOCUMENTS]))


def test_many_documents(cross_encoder: Kind) -> None:
    documents = [f"{number} {text[:40]}" for number, text in enumerate(short_texts(50) * 5)]
    body = cross_encoder.post("/rerank", query=QUERY, documents=documents, top_n=250).json()
    expected = cross_encoder.llm.rerank(QUERY, documents, use_tqdm=False)
    shown = [result["relevance_score"] for result in body["results"]]
    np.testing.assert_allclose(shown, [found.score for found in expected], atol=2e-6)
    assert shown == sorted(shown, reverse=True)
    assert body["meta"]["billed_units"] == {"search_units": 3}


@pytest.mark.parametrize(
    ("path", "body", "param", "part"),
    [
        ("/score", {}, "data_1", "queries with documents, queries with items, data_1 with data_2, text_1 with text_2"),
        ("/score", {"text_1": "a", "data_2": "b"}, "data_1", "two sides"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1", "Input lengths must be either 1:1, 1:N or N:N"),
        ("/score", {"text_1": [], "text_2": ["a"]}, "text_1", "At least one text element must be given"),
        ("/score", {"queries": "a", "items": []}, "items", "At least one text_pair element must be given"),
        ("/score", {"text_1": [1], "text_2": ["a"]}, "text_1[0]", "Expected"),
        ("/score", {"text_1": "a", "text_2": "b", "max_tokens_per_doc": -1}, "max_tokens_per_doc", "non-negative"),
        ("/score", {"text_1": "a", "text_2": "b", "max_tokens_per_query": 70}, "max_tokens_per_query", "less than"),
        ("/score", {"text_1": "a", "text_2": "b", "chat_template": "{{ 1 }}"}, "chat_template", "brings its own"),
        (
            "/score",
            {"text_1": "a", "text_2": "b", "chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
            "chat_template",
            "brings its own",
        ),
        ("/rerank", {"query": "a"}, None, "documents"),
        ("/rerank", {"query": "a", "documents": []}, "documents", "At least one text_pair element"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n", ">= 0"),
        ("/rerank", {"query": ["a"], "documents": ["b"]}, "query", "Expected"),
        ("/rerank", {"query": "a", "documents": [{"image": "b"}]}, "documents", "MultiModalParam is not supported"),
        (
            "/rerank",
            {"query": {"content": [{"type": "image_url", "image_url": {"url": "b"}}]}, "documents": ["b"]},
            "query",
            "image_url",
        ),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "rank_fields": ["title"]}, "rank_fields", "not served"),
    ],
)
def test_what_scores_refuse(cross_encoder: Kind, path: str, body: dict[str, Any], param: str | None, part: str) -> None:
    response = cross_encoder.ask(path, **body)
    assert response.status_code == 400, response.text
    found = response.json()["error"]
    assert part in found["message"]
    assert found["param"] == param


@pytest.mark.parametrize("kind", ["classifier", "token_classifier"], indirect=True)
@pytest.mark.parametrize("path", ["/score", "/v1/score", *RERANKS])
def test_models_that_cannot_score_are_404(kind: Kind, path: str) -> None:
    sides = {"query": "a", "documents": ["b"]} if "rerank" in path else {"text_1": "a", "text_2": "b"}
    response = kind.ask(path, **sides)
    assert response.status_code == 404
    assert "This model does not support the Scoring API" in response.json()["error"]["message"]
    assert response.json()["error"]["code"] == 404


def test_fields_without_effect_are_named(cross_encoder: Kind) -> None:
    asked = {"text_1": "a", "text_2": "b", "padding": "max_length", "instruction": "Find it.", "novel": 1}
    ignored = cross_encoder.post("/score", **asked, chat_template_kwargs={"a": 1}).headers["x-ignored-fields"]
    assert ignored == "padding, instruction, chat_template_kwargs, novel"


def test_errors_name_the_query_or_the_document(embedder: Kind) -> None:
    for sides, named in ((("a", ["b", LONG]), "Document 1"), ((LONG, ["b"]), "Query 0")):
        response = embedder.ask("/score", queries=sides[0], documents=sides[1])
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(f"{named} has")
