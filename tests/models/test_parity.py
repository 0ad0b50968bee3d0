"""Every architecture against `transformers`, and every input against itself in another batch."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np
import pytest

import cenote_kernels
from cenote import models, plugins
from cenote.config import KernelChoice
from cenote.errors import ConfigError
from cenote.layers.packed import Wanted
from support.forwards import backbone
from support.parity import (
    BATCH_LIMIT,
    CASES,
    HALF_COSINE,
    REFERENCE_LIMIT,
    Case,
    cosine,
    make_case,
    reference_layers,
    worst_of,
)

WITHOUT_TRANSFORMER = ("static_embedding", "word_embeddings", "bow", "present_words")
PATTERNS: dict[str, tuple[Wanted, ...]] = {
    "first": ("first",),
    "last": ("last",),
    "mixed": ("first", "all", "last"),
    "mostly first": ("all", "first", "first"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(request.param, tmp_path_factory.mktemp("parity"))


def test_every_architecture_and_every_alias_is_a_case() -> None:
    # Models without a transformer are no models of transformers; `tests/meaning/test_word_models.py` has them.
    tested = {model_type for model_type, _ in CASES.values()} | {*WITHOUT_TRANSFORMER, "model2vec"}
    files = {models.ALIASES.get(name, name).replace("-", "_") for name in tested}
    assert files == set(plugins.architectures())
    assert set(models.ALIASES) <= tested


def test_hidden_states_equal_the_reference(case: Case) -> None:
    assert worst_of(case.ours.forward(case.inputs), case.last) <= REFERENCE_LIMIT


def test_every_layer_equals_the_reference(case: Case) -> None:
    numbers = range(len(case.layers))
    for ours, reference in zip(case.ours.layers(case.inputs, numbers), case.layers, strict=True):
        assert worst_of(ours, reference) <= REFERENCE_LIMIT


def test_a_batch_changes_nothing(case: Case) -> None:
    alone = [case.ours.forward([one])[0] for one in case.inputs]
    order = np.random.default_rng(3).permutation(len(case.inputs)).tolist()
    shuffled = case.ours.forward([case.inputs[i] for i in order])
    doubled = case.ours.forward([case.inputs[i // 2] for i in range(2 * len(case.inputs))])
    assert worst_of(case.ours.forward(case.inputs), alone) <= BATCH_LIMIT
    assert worst_of(shuffled, [alone[i] for i in order]) <= BATCH_LIMIT
    assert worst_of(doubled, [alone[i // 2] for i in range(len(doubled))]) <= BATCH_LIMIT


def test_no_segments_are_segments_of_zeros(case: Case) -> None:
    zeros = [(ids, [0] * len(ids)) for ids, _ in case.inputs]
    none = [(ids, None) for ids, _ in case.inputs]
    assert worst_of(case.ours.forward(none), case.ours.forward(zeros)) <= BATCH_LIMIT


@pytest.mark.parametrize("pattern", PATTERNS)
def test_kept_rows_are_the_rows_of_a_full_forward(case: Case, pattern: str) -> None:
    wanted = list(islice(cycle(PATTERNS[pattern]), len(case.inputs)))
    rows: dict[Wanted, slice] = {"first": slice(0, 1), "last": slice(-1, None), "all": slice(None)}
    full = case.ours.forward(case.inputs)
    expected = [hidden[rows[which]] for hidden, which in zip(full, wanted, strict=True)]
    kept = case.ours.forward(case.inputs, wanted)
    for ours, row, whole in zip(kept, expected, full, strict=True):
        assert ours.shape == row.shape
        assert np.abs(ours - row).max() <= BATCH_LIMIT * np.abs(whole).max()


@pytest.mark.parametrize("isa", cenote_kernels.isas() if cenote_kernels.why_not() is None else ())
def test_kernels_of_our_own_compute_the_same(case: Case, isa: KernelChoice) -> None:
    ours = backbone(case.folder, kernels=isa)
    together = ours.forward(case.inputs)
    assert worst_of(together, case.last) <= REFERENCE_LIMIT
    assert worst_of(together, [ours.forward([one])[0] for one in case.inputs]) <= BATCH_LIMIT
    kept = ours.forward(case.inputs, ["first"] * len(case.inputs))
    assert worst_of([rows[:1] for rows in together], kept) <= BATCH_LIMIT


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_points_the_same_way(case: Case, dtype: str) -> None:
    why_not = case.ours.recipe.model.nature.why_not_float16
    if dtype == "float16" and why_not:
        with pytest.raises(ConfigError, match=why_not):
            backbone(case.folder, dtype)
        return
    half = backbone(case.folder, dtype).forward(case.inputs)
    # Over the batch: a lone token of a tiny random model turns further, in the reference's own half precision too.
    near = cosine(np.concatenate(half), np.concatenate(case.last))
    if near < HALF_COSINE:
        theirs = reference_layers(case.folder, case.inputs, dtype)[-1]
        assert near >= cosine(np.concatenate(theirs), np.concatenate(case.last))
