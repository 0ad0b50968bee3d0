"""Requests that name an adapter, at the doors that give vectors."""

from __future__ import annotations

from pathlib import Path

import httpx

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
