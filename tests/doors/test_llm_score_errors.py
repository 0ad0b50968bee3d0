"""Errors of scores name the query or the document at fault, each counted from 0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote import LLM
from cenote.errors import BadInput, TooLong
from support.fixtures import TinySentence

LONG = "a " * 70


@pytest.fixture(scope="module")
def embedder(tiny_sentence: TinySentence) -> Iterator[LLM]:
    with LLM(str(tiny_sentence(normalize=True)), max_model_len=40) as llm:
        yield llm


@pytest.mark.parametrize("score_type", ["bi-encoder", "late-interaction"])
def test_errors_name_the_side_at_fault(embedder: LLM, score_type: str) -> None:
    def failing(data_1: list[str], data_2: list[str]) -> BadInput:
        with pytest.raises(BadInput) as caught:
            embedder.score(data_1, data_2, use_tqdm=False, score_type=score_type)
        return caught.value

    assert str(failing(["a", "b"], ["c", LONG])).startswith("Document 1 has 72 tokens, too many for")
    assert str(failing(["a", LONG], ["c", "d"])).startswith("Query 1 has 72 tokens, too many for")
    assert str(failing(["a"], ["b", "c", "\ud800"])).startswith("Document 2 has the lone surrogate")
    several = failing(["a"], [LONG, "b", LONG])
    assert isinstance(several, TooLong)
    assert several.offenders == (0, 2)
    assert str(several).startswith("2 of 3 documents have too many tokens for")
    assert "document 0 has 72, document 2 has 72." in str(several)


def test_options_that_are_none_are_named(embedder: LLM) -> None:
    with pytest.raises(BadInput, match=r"^score_type=\[\]"):
        embedder.score("a", "b", score_type=[])
    for min_score in ("x", float("nan"), True):
        with pytest.raises(BadInput, match=r"^min_score="):
            embedder.rerank("a", ["b"], min_score=min_score)  # type: ignore[arg-type]
    assert embedder.rerank("a", ["b"], min_score=float("inf"), use_tqdm=False) == []


def test_a_refused_side_leaves_nothing_running(embedder: LLM) -> None:
    with pytest.raises(BadInput):
        embedder.score(["a " * 30] * 40, ["b"] * 39 + [LONG], use_tqdm=False)
    assert embedder.engine.snapshot().open_calls == 0
