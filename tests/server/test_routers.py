"""Requests that say what their texts are, to a model that reads queries and documents in ways of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cohere
import httpx

from cenote import LLM
from support.parity import BATCH_LIMIT
from support.references import worst_error
from support.routers import save_router
from support.texts import short_texts

from .running import Server

TEXTS = short_texts(4)


def test_input_type_chooses_the_route(tmp_path: Path) -> None:
    folder = save_router(tmp_path / "m", "static queries", prompts={"query": "find this: ", "document": ""})
    with (
        Server(folder, served_model_name=["m"]) as server,
        LLM(str(folder)) as llm,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        wanted = {
            "query": llm.embed_query(TEXTS, output="numpy", use_tqdm=False),
            "document": llm.embed_document(TEXTS, output="numpy", use_tqdm=False),
        }
        assert worst_error(wanted["query"], wanted["document"]) > 0.05
        for name, rows in wanted.items():
            body = {"input": TEXTS, "input_type": name}
            embedded = client.post("/v1/embeddings", json=body).raise_for_status()
            assert worst_error([one["embedding"] for one in embedded.json()["data"]], rows) <= BATCH_LIMIT
            # No prompt of a document has a text, yet the type was of use.
            assert not [header for header in embedded.headers if "ignored" in header or "warning" in header]
            keyed = client.post("/v1/embeddings", json={"input": [{name: text} for text in TEXTS], "prompt_name": name})
            assert (
                worst_error([one["embedding"] for one in keyed.raise_for_status().json()["data"]], rows) <= BATCH_LIMIT
            )
            pooled = client.post("/pooling", json=body).raise_for_status().json()
            assert worst_error([one["data"] for one in pooled["data"]], rows) <= BATCH_LIMIT
            with cohere.ClientV2("any", base_url=server.url) as other:
                told = other.embed(
                    model="m", texts=TEXTS, input_type=f"search_{name}", embedding_types=["float"]
                ).embeddings.float_
            assert told is not None
            assert worst_error(told, rows) <= BATCH_LIMIT
        refused = client.post("/v1/embeddings", json={"input": TEXTS, "input_type": "clustering"})
        assert refused.status_code == 400
        assert "has no route for input_type 'clustering'" in refused.json()["error"]["message"]
        bodies: list[tuple[dict[str, Any], str]] = [
            ({"input": [{"query": "a"}, {"document": "b"}]}, "another has ['document']"),
            ({"input": {"query": "a"}, "input_type": "query"}, "Give one of them"),
            ({"input": [{"role": "user", "query": "a"}]}, "takes no conversations"),
        ]
        for wrong, part in bodies:
            bad = client.post("/v1/embeddings", json=wrong)
            assert bad.status_code == 400
            assert part in bad.json()["error"]["message"]
        scored = client.post("/score", json={"text_1": TEXTS[0], "text_2": TEXTS[1:]}).raise_for_status().json()
        expected = wanted["document"][1:] @ wanted["query"][0]
        assert worst_error([one["score"] for one in scored["data"]], expected) <= 1e-5
