"""What label tokens may be, and what is said where they cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cenote import LLM
from cenote.errors import CenoteError
from support.fixtures import Tiny
from support.rerankers import modular, reranker

TWO = {"classifier_from_token": ["no", "yes"], "method": "from_2_way_softmax"}


@pytest.mark.parametrize(
    ("model_type", "says", "message"),
    [
        ("qwen2", {**TWO, "method": "softmax"}, "method softmax not supported. It is from_2_way_softmax, or no_post"),
        ("qwen2", {**TWO, "method": None}, "method None not supported"),
        ("qwen2", {**TWO, "classifier_from_token": ["yes"]}, r"was given 1 tokens, \['yes'\]. It takes two"),
        ("qwen2", {"is_original_qwen3_reranker": True, "classifier_from_token": ["yes"]}, "was given 1 tokens"),
        ("qwen2", {**TWO, "classifier_from_token": ["no", "YES!"]}, r"names \['YES!'\], which the vocabulary"),
        ("qwen2", {**TWO, "classifier_from_token": "yes"}, "classifier_from_token='yes'"),
        ("gemma2", TWO, r"bends the logits of tokens \(final_logit_softcapping=30.0\)"),
        ("bert", TWO, "this family of models has no language-model head"),
    ],
)
def test_what_cannot_be_is_named(
    tiny: Tiny, tmp_path: Path, model_type: str, says: dict[str, Any], message: str
) -> None:
    if model_type == "bert":
        folder = tiny("bert")
        says = {**says, "classifier_from_token": ["the", "is"]}
    else:
        folder = reranker(tiny(model_type, head="causal_lm"), tmp_path / "m")
    with pytest.raises(CenoteError, match=message):
        LLM(str(folder), hf_overrides=says)


def test_a_token_that_the_head_has_no_row_for_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    folder = modular(reranker(tiny("qwen3", head="causal_lm"), tmp_path / "m"), true=3, false=9999, messages=False)
    with pytest.raises(CenoteError, match=r"label tokens \[3, 9999\] are not all below 887"):
        LLM(str(folder))


def test_a_head_that_is_not_tied_and_not_stored_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    source = reranker(tiny("qwen3", head="causal_lm", tie_word_embeddings=True), tmp_path / "m")
    with pytest.raises(CenoteError, match=r"has no lm_head\.weight, of which its labels are rows"):
        LLM(str(source), hf_overrides={**TWO, "tie_word_embeddings": False})
