"""Requests that name an adapter, at the doors that give vectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from cenote import EmbeddingRequestOutput
from cenote.errors import BadInput
from cenote.llm import LLM
from support.fixtures import Tiny, TinySentence
from support.jina_v3 import ADAPTERS, as_makers, with_adapters
from support.parity import BATCH_LIMIT
from support.references import worst_error
from support.texts import short_texts

from .running import Server

TEXTS = short_texts(4)


def test_requests_are_read_with_the_adapters_they_name(tiny: Tiny, tiny_sentence: TinySentence, tmp_path: Path) -> None:
    plain = tiny_sentence(model_type="jina_embeddings_v3", pooling="mean", normalize=True)
    folder = as_makers(plain, with_adapters(tiny("jina_embeddings_v3"), tmp_path / "weights"), tmp_path / "m")
    found = {}
    with Server(folder) as server, LLM(str(folder)) as llm, httpx.Client(base_url=server.url, timeout=60) as client:
        for name in (None, *ADAPTERS):
            body = {"input": TEXTS, **({"adapter": name} if name else {})}
            answer = client.post("/v1/embeddings", json=body).raise_for_status().json()
            found[name] = [entry["embedding"] for entry in answer["data"]]
            outs = llm.embed(TEXTS, adapter=name, use_tqdm=False)
            assert worst_error(found[name], [out.outputs.embedding for out in outs]) <= BATCH_LIMIT
            rows = client.post("/pooling", json={**body, "task": "token_embed"}).raise_for_status().json()
            tokens = llm.encode(TEXTS, pooling_task="token_embed", adapter=name, use_tqdm=False)
            for entry, out in zip(rows["data"], tokens, strict=True):
                assert worst_error(entry["data"], out.outputs.data) <= BATCH_LIMIT
    assert min(worst_error(found[name], found[None]) for name in ADAPTERS) > 0.05


def test_each_side_of_a_score_has_its_adapter(tiny: Tiny, tiny_sentence: TinySentence, tmp_path: Path) -> None:
    plain = tiny_sentence(model_type="jina_embeddings_v3", pooling="mean", normalize=True)
    folder = as_makers(plain, with_adapters(tiny("jina_embeddings_v3"), tmp_path / "weights"), tmp_path / "m")
    query, *documents = TEXTS
    with Server(folder) as server, LLM(str(folder)) as llm, httpx.Client(base_url=server.url, timeout=60) as client:

        def expected(**sides: dict[str, Any]) -> list[float]:
            first, second = (
                llm.embed(texts, output="numpy", use_tqdm=False, **sides[side])
                for side, texts in (("query", [query]), ("document", documents))
            )
            scores: list[float] = (second @ first[0]).tolist()
            return scores

        both: dict[str, Any] = {"query_adapter": "separation", "document_adapter": "retrieval.query"}
        typed: dict[str, Any] = {"query_input_type": "document", "document_input_type": "query"}
        sides: dict[str, Any]
        for asked, sides in (
            ({}, {"query": {"adapter": "retrieval.query"}, "document": {"adapter": "retrieval.passage"}}),
            (both, {"query": {"adapter": "separation"}, "document": {"adapter": "retrieval.query"}}),
            (typed, {"query": {"adapter": "retrieval.passage"}, "document": {"adapter": "retrieval.query"}}),
        ):
            scores = expected(**sides)
            ours = [out.outputs.score for out in llm.score(query, documents, use_tqdm=False, **asked)]
            assert ours == pytest.approx(scores, abs=2e-6)
            ranked = llm.rerank(query, documents, use_tqdm=False, **asked)
            assert [one.score for one in ranked] == pytest.approx(sorted(scores, reverse=True), abs=2e-6)
            answer = client.post("/score", json={"text_1": query, "text_2": documents, **asked}).raise_for_status()
            assert [one["score"] for one in answer.json()["data"]] == pytest.approx(scores, abs=2e-6)
            body = {"query": query, "documents": documents, **asked}
            results = client.post("/rerank", json=body).raise_for_status().json()["results"]
            assert [one["relevance_score"] for one in results] == pytest.approx(sorted(scores, reverse=True), abs=2e-6)
        for wrong, message in (
            ({"query_adapter": "none"}, "has no adapter named 'none'"),
            ({"document_adapter": 3}, "document_adapter=3. It is a name"),
        ):
            with pytest.raises(BadInput, match=re.escape(message)):
                llm.score(query, documents, use_tqdm=False, **wrong)
        assert client.post("/score", json={"text_1": "a", "text_2": "b", "query_adapter": "none"}).status_code == 400
    cross_encoder = str(tiny("bert", head="sequence_classification", num_labels=1))
    with LLM(cross_encoder) as cross, pytest.raises(BadInput, match="query_adapter was given, but a cross-encoder"):
        cross.score("a", "b", query_adapter="x")


def test_types_of_input_choose_the_prompts_of_a_score(tiny_sentence: TinySentence) -> None:
    with LLM(str(tiny_sentence(normalize=True, prompts={"query": "ask: ", "document": "read: "}))) as llm:
        query, *documents = TEXTS
        how = {"query_input_type": "query", "document_input_type": "passage"}
        ours = [out.outputs.score for out in llm.score(query, documents, use_tqdm=False, **how)]
        first = llm.embed_query(query, output="numpy", use_tqdm=False)[0]
        scores = llm.embed_document(documents, output="numpy", use_tqdm=False) @ first
        assert ours == pytest.approx(scores.tolist(), abs=2e-6)
        plain = [out.outputs.score for out in llm.score(query, documents, use_tqdm=False)]
        assert max(abs(one - other) for one, other in zip(ours, plain, strict=True)) > 1e-3


def test_types_of_input_choose_the_adapter(tiny: Tiny, tiny_sentence: TinySentence, tmp_path: Path) -> None:
    plain = tiny_sentence(model_type="jina_embeddings_v3", pooling="mean", normalize=True)
    folder = as_makers(plain, with_adapters(tiny("jina_embeddings_v3"), tmp_path / "weights"), tmp_path / "m")
    with Server(folder) as server, LLM(str(folder)) as llm, httpx.Client(base_url=server.url, timeout=60) as client:

        def ask(path: str, **body: Any) -> Any:
            return client.post(path, json=body).raise_for_status().json()

        def vectors(outs: list[EmbeddingRequestOutput]) -> list[list[float]]:
            return [out.outputs.embedding for out in outs]

        for input_type, name, embed in (
            ("search_query", "retrieval.query", llm.embed_query),
            ("search_document", "retrieval.passage", llm.embed_document),
        ):
            expected = vectors(llm.embed(TEXTS, adapter=name, use_tqdm=False))
            openai = ask("/v1/embeddings", input=TEXTS, input_type=input_type)["data"]
            cohere = ask("/v2/embed", texts=TEXTS, input_type=input_type, model=str(folder))["embeddings"]["float"]
            tei = ask("/embed", inputs=TEXTS, prompt_name=name)
            for rows in ([one["embedding"] for one in openai], cohere, tei, vectors(embed(TEXTS, use_tqdm=False))):
                assert worst_error(rows, expected) <= BATCH_LIMIT
            kept = llm.embed(TEXTS, adapter="separation", input_type=input_type, prompt="", use_tqdm=False)
            assert (
                worst_error(vectors(kept), vectors(llm.embed(TEXTS, adapter="separation", use_tqdm=False)))
                <= BATCH_LIMIT
            )
