"""What texts of a batch begin with alike is computed once, and no row is another for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote import models
from cenote.layers.packed import Packed, Wanted
from cenote.prefixes import share
from cenote.runner import Runner
from cenote.types import Batch, FloatArray, ReadKey
from support.decoders import VARIANTS
from support.fixtures import Tiny
from support.forwards import CPU, Given, backbone, pack, recipe_of
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import ragged_ids, reference_hidden, worst_error
from support.saving import read_json

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: VARIANTS[name] for name in ("llama", "qwen3", "gemma2", "gemma3_text", "mistral-window", "phi3")},
    # Windows that reach over the end of the shared part, and beyond its start.
    "gemma3 seeing farther": ("gemma3_text", {"sliding_window": 17}),
    "gemma2 seeing farther": ("gemma2", {"sliding_window": 31}),
}
LAST, MEAN, TOKENS = ReadKey("embed"), ReadKey("embed", "mean"), ReadKey("token_embed")
READS = {"last": (LAST,), "mean": (MEAN,), "tokens": (TOKENS,), "each": (LAST, MEAN, TOKENS)}


@pytest.fixture(params=FORMS)
def folder(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    model_type, more = FORMS[request.param]
    return tiny(model_type, num_hidden_layers=2, **more)


def texts(folder: Path) -> list[Given]:
    """Two prompts, the first with a longer one; one text is a prompt and no more, one has none of them."""
    first, more, second, *tails = (ids for ids, _ in ragged_ids(folder, (20, 11, 9, 1, 5, 5, 5, 9, 30, 30, 3)))
    begun = [first] * 4 + [first + more] * 2 + [second] * 2
    joined = [beginning + tail for beginning, tail in zip(begun, tails, strict=True)]
    return [(ids, None) for ids in sorted([*joined, first, second[:1], tails[6]], key=len)]


def wanted_of(name: str, given: Sequence[Given]) -> list[Wanted]:
    if name != "mixed":
        return [] if name == "all" else ["last"] * len(given)
    # An id is that of the first token, which most texts share.
    turns: list[list[Wanted]] = [["last", "first", "all", "last", ids[0]] for ids, _ in given]
    return [turn[seq % 5] for seq, turn in enumerate(turns)]


@pytest.mark.parametrize("wanted", ["all", "last", "mixed"])
def test_hidden_states_equal_the_reference(folder: Path, wanted: str) -> None:
    given = texts(folder)
    asked = wanted_of(wanted, given)
    batch = share(pack(given))
    assert batch.shared is not None
    assert batch.shared.sum() >= 120
    with torch.inference_mode():
        packed = Packed.of(batch, torch.device("cpu"), asked)
        assert len(packed.ids_T) == batch.num_tokens - batch.shared.sum()
        hidden = backbone(folder).model(packed).last_QD
    rows = packed.of_kept(hidden) if packed.kept is None else hidden
    bounds_S1 = packed.bounds.key_S1 if packed.kept is None else packed.kept.bounds.query_S1
    ours = [part.numpy() for part in rows.split(bounds_S1.diff().tolist())]
    for seq, theirs in enumerate(reference_hidden(folder, given)):
        expected = picked(theirs, given[seq][0], asked[seq] if asked else "all")
        assert ours[seq].shape == expected.shape
        assert worst_error(ours[seq], expected) <= REFERENCE_LIMIT


def picked(rows: FloatArray, ids: Sequence[int], which: Wanted) -> FloatArray:
    places = np.arange(len(ids))
    if isinstance(which, int):
        places = np.flatnonzero(np.array(ids) == which)
    elif which != "all":
        places = places[:1] if which == "first" else places[-1:]
    found: FloatArray = rows[places]
    return found


@pytest.mark.parametrize("reads", READS.values(), ids=READS)
def test_every_reading_is_that_of_the_batch_without_it(folder: Path, reads: tuple[ReadKey, ...]) -> None:
    for ours, theirs in zip(*with_and_without(folder, reads), strict=True):
        assert ours.shape == theirs.shape
        assert worst_error(ours, theirs) <= BATCH_LIMIT


@pytest.mark.parametrize("head", ["sequence_classification", "token_classification"])
def test_classes_are_those_of_the_batch_without_it(tiny: Tiny, head: str) -> None:
    folder = tiny("qwen3", head=head, num_hidden_layers=2)
    task = "classify" if head == "sequence_classification" else "token_classify"
    ours, theirs = (np.vstack(rows) for rows in with_and_without(folder, (ReadKey(task),)))
    assert worst_error(ours, theirs) <= BATCH_LIMIT


def with_and_without(folder: Path, reads: tuple[ReadKey, ...]) -> tuple[list[FloatArray], list[FloatArray]]:
    """The rows of each text where what they begin with is shared, and where it is not."""
    given = texts(folder)
    keys = tuple(reads[seq % len(reads)] for seq in range(len(given)))
    batch = replace(pack(given), reads=keys, skip=np.arange(len(given), dtype=np.int32) % 3)
    runner = Runner(recipe_of(folder), CPU)
    assert runner.shares_prefixes
    shared = share(batch)
    assert shared.rows is not None
    return by_text(runner, shared), by_text(runner, batch)


def by_text(runner: Runner, batch: Batch) -> list[FloatArray]:
    found = {seq: row for rows in runner.run(batch) for seq, row in zip(rows.seqs.tolist(), rows.rows, strict=True)}
    return [found[seq] for seq in range(batch.num_seqs)]


def test_only_models_whose_rows_stand_share_them(tiny: Tiny) -> None:
    for name, (model_type, more) in VARIANTS.items():
        raw = read_json(tiny(model_type, **more) / "config.json")
        no_less = "bidirec" in name or "both-ways" in name or "dynamic" in name or "longrope" in name
        assert models.find(raw).Config.from_hf(raw).nature.shares_prefixes != no_less, name
    raw = read_json(tiny("gemma3_text") / "config.json")
    kinds = {kind: {"rope_type": "default", "rope_theta": 200.0} for kind in ("full_attention", "sliding_attention")}
    kinds["full_attention"] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 200.0}
    assert not models.find(raw).Config.from_hf({**raw, "rope_parameters": kinds}).nature.shares_prefixes
    for model_type in ("bert", "modernbert"):
        assert not Runner(recipe_of(tiny(model_type)), CPU).shares_prefixes


def test_a_setting_turns_it_off(tiny: Tiny) -> None:
    assert not Runner(recipe_of(tiny("llama")), replace(CPU, share_prefixes=False)).shares_prefixes


def test_integers_are_not_shared(tiny: Tiny) -> None:
    assert not Runner(recipe_of(tiny("llama")), replace(CPU, quantization="int8")).shares_prefixes
