"""A reranker that reads whole lists, at the doors that score and rank."""

from __future__ import annotations

from pathlib import Path

import httpx

from cenote.llm import LLM
from support.fixtures import Tiny
from support.parity import BATCH_LIMIT
from support.references import worst_error
from support.rerankers import listwise

from .running import Server

QUERY = "Which fox is red?"
DOCUMENTS = ["A red fox.", "The cat sleeps; it is grey.", "yes no yes"]


def test_a_list_is_scored_and_ranked_as_in_the_library(tiny: Tiny, tmp_path: Path) -> None:
    folder = listwise(tiny("qwen3", max_positions=900), tmp_path / "m")
    with Server(folder) as server, LLM(str(folder)) as llm, httpx.Client(base_url=server.url, timeout=60) as client:
        expected = [out.outputs.score for out in llm.score(QUERY, DOCUMENTS, use_tqdm=False)]
        told = [out.outputs.score for out in llm.score(QUERY, DOCUMENTS, instruction="Be kind.", use_tqdm=False)]
        pairs = [out.outputs.score for out in llm.score([QUERY] * 3, DOCUMENTS, use_tqdm=False)]
        assert min(worst_error(told, expected), worst_error(pairs, expected)) > 1e-4
        for sides, more, scores in (
            ((QUERY, DOCUMENTS), {}, expected),
            ((QUERY, DOCUMENTS), {"instruction": "Be kind."}, told),
            (([QUERY] * 3, DOCUMENTS), {}, pairs),
        ):
            body = {"queries": sides[0], "documents": sides[1], **more}
            answer = client.post("/score", json=body).raise_for_status().json()
            assert worst_error([entry["score"] for entry in answer["data"]], scores) <= BATCH_LIMIT
        for route in ("/rerank", "/v1/rerank", "/v2/rerank"):
            answer = client.post(route, json={"query": QUERY, "documents": DOCUMENTS}).raise_for_status().json()
            found = {entry["index"]: entry["relevance_score"] for entry in answer["results"]}
            assert worst_error([found[index] for index in range(3)], expected) <= BATCH_LIMIT
            assert [entry["index"] for entry in answer["results"]] == sorted(found, key=lambda index: -found[index])
