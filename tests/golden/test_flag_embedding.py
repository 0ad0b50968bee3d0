"""BGE-M3's rows and scores, and its reranker's, against those that FlagEmbedding gave (`make_flag_embedding.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM
from support.rows import assert_equal

HERE = Path(__file__).resolve().parent / "flag_embedding"
TEXTS = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))
with np.load(HERE / "rows.npz") as stored:
    GOLDEN = dict(stored)
# FlagEmbedding cuts what is too long.
CUT: dict[str, Any] = {"use_tqdm": False, "tokenization_kwargs": {"truncate_prompt_tokens": -1}}


@pytest.fixture(scope="module")
def embedder() -> Iterator[LLM]:
    with LLM(str(HERE / "embedder")) as llm:
        yield llm


@pytest.fixture(scope="module")
def reranker() -> Iterator[LLM]:
    with LLM(str(HERE / "reranker")) as llm:
        yield llm


@pytest.mark.parametrize("side", ["queries", "documents"])
def test_all_three_rows_equal_flag_embedding(embedder: LLM, side: str) -> None:
    texts = TEXTS[side]
    outs = embedder.embed_all(texts, **CUT)
    indices = range(len(texts))
    assert_equal([out.outputs.embedding for out in outs], [GOLDEN[f"{side}_dense_{index}"] for index in indices])
    assert_equal(
        [out.outputs.token_embeddings for out in outs], [GOLDEN[f"{side}_tokens_{index}"] for index in indices]
    )
    for index, out in enumerate(outs):
        assert out.outputs.sparse.indices == GOLDEN[f"{side}_words_{index}"].tolist()
        if out.outputs.sparse.indices:
            assert_equal([out.outputs.sparse.values], [GOLDEN[f"{side}_weights_{index}"]])
    assert_equal(embedder.embed(texts, output="numpy", **CUT), [GOLDEN[f"{side}_dense_{index}"] for index in indices])


@pytest.mark.parametrize(
    ("score_type", "name"),
    [
        ("bi-encoder", "dense"),
        ("sparse", "sparse"),
        ("late-interaction", "colbert"),
        ("hybrid", "colbert+sparse+dense"),
    ],
)
@pytest.mark.parametrize("mixed", ["equal", "weighted"])
def test_scores_equal_flag_embedding(embedder: LLM, score_type: str, name: str, mixed: str) -> None:
    more = {"weights": TEXTS["weights"]} if (mixed, score_type) == ("weighted", "hybrid") else {}
    ours = [
        [out.outputs.score for out in embedder.score(query, TEXTS["documents"], score_type=score_type, **more, **CUT)]
        for query in TEXTS["queries"]
    ]
    # A text of nothing but special tokens has no words, so its scores by words are all 0.
    assert_equal([np.ravel(ours)], [GOLDEN[f"scores_{name}_{mixed}"].ravel()])


@pytest.mark.parametrize(("name", "use_activation"), [("raw", False), ("normalized", None)])
def test_a_reranker_equals_flag_embedding(reranker: LLM, name: str, use_activation: bool | None) -> None:
    ours = [
        [out.outputs.score for out in reranker.score(query, TEXTS["documents"], use_activation=use_activation, **CUT)]
        for query in TEXTS["queries"]
    ]
    assert_equal(ours, GOLDEN[f"reranked_{name}"])
