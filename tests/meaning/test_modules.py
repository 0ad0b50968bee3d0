"""Modules after the transformer against sentence-transformers: modes, Dense, LayerNorm, Normalize, both generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote.modules.readers import _NEW_MODES
from support.fixtures import TinySentence
from support.forwards import finished_rows
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import Ids, reference_ids, reference_vectors, worst_error
from support.saving import hub_cache
from support.sentence_folders import POOLING_MODES, Dense
from support.texts import short_texts

TEXTS = [*short_texts(9), "", "a", "a"]
PROMPT = "represent this: "
AFTER: dict[str, dict[str, Any]] = {
    "alone": {},
    "then Normalize": {"normalize": True},
    "then Dense": {"dense": Dense()},
    "then Dense, LayerNorm, Normalize": {"dense": Dense(activation="Identity"), "layer_norm": True, "normalize": True},
}


def ids_of(folder: Path, texts: list[str]) -> list[Ids]:
    found = reference_ids(folder, texts, truncation=True)
    return [(ids, segments or [0] * len(ids)) for ids, segments in found]


def assert_rows_equal(folder: Path) -> None:
    ours, reference = finished_rows(folder, ids_of(folder, TEXTS)), reference_vectors(folder, TEXTS)
    for row, expected in zip(ours, reference, strict=True):
        assert worst_error(row, expected) <= REFERENCE_LIMIT


def test_every_mode_is_tried() -> None:
    assert set(POOLING_MODES) == set(_NEW_MODES)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("generation", ["old", "new"])
@pytest.mark.parametrize("pooling", POOLING_MODES)
def test_rows_equal_the_reference(tiny_sentence: TinySentence, pooling: str, generation: str, after: str) -> None:
    assert_rows_equal(tiny_sentence(pooling=pooling, generation=generation, **AFTER[after]))


@pytest.mark.parametrize("generation", ["old", "new"])
@pytest.mark.parametrize("pooling", [("cls", "mean"), ("max", "mean", "lasttoken"), POOLING_MODES])
def test_several_modes_stand_side_by_side(
    tiny_sentence: TinySentence, pooling: tuple[str, ...], generation: str
) -> None:
    assert_rows_equal(tiny_sentence(pooling=pooling, generation=generation, dense=Dense(), normalize=True))


@pytest.mark.parametrize("model_type", ["roberta", "distilbert", "mpnet", "electra"])
def test_other_families_are_pooled_alike(tiny_sentence: TinySentence, model_type: str) -> None:
    assert_rows_equal(tiny_sentence(model_type=model_type, pooling="mean", normalize=True))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["Tanh", "Identity", "ReLU", "GELU", "Sigmoid"])
def test_dense_equals_the_reference(tiny_sentence: TinySentence, activation: str, bias: bool) -> None:
    assert_rows_equal(tiny_sentence(pooling="mean", dense=Dense(activation=activation, bias=bias, dtype="float16")))


@pytest.mark.parametrize("pooling", POOLING_MODES)
def test_a_prompt_is_left_out_of_the_pooling(tiny_sentence: TinySentence, pooling: str) -> None:
    folder = tiny_sentence(pooling=pooling, include_prompt=False, prompts={"query": PROMPT})
    # All tokens of the prompt but its end token, which comes after the text.
    skip = len(ids_of(folder, [PROMPT])[0][0]) - 1
    ours = finished_rows(folder, ids_of(folder, [PROMPT + text for text in TEXTS]), skip)
    reference = reference_vectors(folder, TEXTS, prompt_name="query")
    for row, expected in zip(ours, reference, strict=True):
        assert worst_error(row, expected) <= REFERENCE_LIMIT


@pytest.mark.parametrize("pooling", POOLING_MODES)
def test_a_text_that_is_all_prompt_reads_no_other_text(tiny_sentence: TinySentence, pooling: str) -> None:
    folder = tiny_sentence(pooling=pooling, include_prompt=False, prompts={"query": PROMPT})
    (first, *others), skip = ids_of(folder, [PROMPT, *TEXTS]), 10**4
    (alone,) = finished_rows(folder, [first], skip)
    together = finished_rows(folder, [first, *others], skip)[0]
    # Where nothing is left to pool, some modes answer zero, which no error can be relative to.
    assert np.abs(together - alone).max() <= BATCH_LIMIT * max(1.0, np.abs(alone).max())


def test_a_folder_of_links_keeps_its_modules(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    assert_rows_equal(hub_cache(tiny_sentence(pooling="mean", generation="old", dense=Dense()), tmp_path))
