"""Texts longer than the model through the server, embedded in pieces as the reference's switch asks."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from cenote import LLM
from support.fixtures import TinySentence
from support.parity import BATCH_LIMIT
from support.references import worst_error
from support.texts import paragraphs, short_texts

from .running import Server
from .test_recorded_clients import vectors_in

LONG = " ".join(paragraphs(2))


@pytest.mark.timeout(120)
def test_long_texts_are_embedded_in_pieces_up_to_a_limit(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling="mean", normalize=True, num_hidden_layers=1)
    texts = [LONG, *short_texts(2)]
    with LLM(str(folder)) as llm:
        outs = llm.embed(texts, use_tqdm=False, on_long="chunk", chunk_overlap=5)
    num_tokens = [len(out.prompt_token_ids) for out in outs]
    asked = {"enable_chunked_processing": True, "max_embed_len": num_tokens[0]}
    settings = {"chunk_overlap": 5, "pooler_config": asked}
    with Server(folder, model_settings=settings) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        answer = client.post("/v1/embeddings", json={"input": texts})
        assert answer.status_code == 200
        rows = [entry["embedding"] for entry in answer.json()["data"]]
        expected = [out.outputs.embedding for out in outs]
        assert max(map(worst_error, rows, expected)) <= BATCH_LIMIT
        assert answer.json()["usage"]["prompt_tokens"] == sum(num_tokens)
        cut = client.post("/v1/embeddings", json={"input": texts, "truncate_prompt_tokens": -1})
        assert not np.allclose(cut.json()["data"][0]["embedding"], rows[0], atol=1e-3)
        longer = client.post("/v1/embeddings", json={"input": ["a", f"{LONG} and more"]})
        assert longer.status_code == 400
        assert f"maximum context length is {num_tokens[0]} tokens" in longer.json()["error"]["message"]
        assert "Input 1 has" in longer.json()["error"]["message"]
        # Dialects that cut by default embed in pieces, too, unless a request says that it wants a cut.
        for path, field, said in (
            ("/v2/embed", "texts", {"truncate": "END"}),
            ("/embed", "inputs", {"truncate": True}),
            ("/voyage/v1/embeddings", "input", {"truncation": True}),
            ("/mixedbread/v1/embeddings", "input", {"truncation_strategy": "end"}),
            ("/embeddings", "input", {"truncate_prompt_tokens": -1}),
            ("/embedding", "content", None),
        ):
            whole = vectors_in(client.post(path, json={field: texts}).json())
            assert max(map(worst_error, whole, expected)) <= BATCH_LIMIT
            if said is not None:
                (first, *_) = vectors_in(client.post(path, json={field: texts} | said).json())
                np.testing.assert_allclose(first, cut.json()["data"][0]["embedding"], atol=5e-6)
            assert "maximum context length" in client.post(path, json={field: [f"{LONG} and more"]}).text
        tokens = client.post("/pooling", json={"input": LONG, "task": "token_embed"})
        assert tokens.status_code == 400
