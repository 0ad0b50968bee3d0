"""Requests that name an adapter, at the doors that give vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from cenote import EmbeddingRequestOutput
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
