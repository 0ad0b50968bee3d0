"""Scores with distances by our own kernels against those by PyTorch, under every rule and for all rows or some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import cenote_kernels
from cenote.layers.attention import Rule, attend
from cenote.layers.disentangled import Disentangled, buckets
from cenote.layers.kernels import DistanceTables, Kernels
from cenote.layers.packed import Bounds, Packed, Wanted
from cenote.types import Batch, Encoded, ReadKey

HEADS, SIZE, SCALE = 4, 6, 0.3
LENGTHS = (5, 5, 1, 12, 30, 130, 30, 2, 70)
ATTENDED = (5, 3, 1, 11, 25, 125, 30, 1, 70)
NUM_BUCKETS, FARTHEST = 16, 60

FIRST: Wanted = "first"
WANTED: dict[str, tuple[Wanted, ...]] = {
    "all": (),
    "first": (FIRST,) * len(LENGTHS),
    "mixed": ("first", "first", "all", "last", "all", "last", 3, "first", "all"),
}
SEEN: dict[str, Callable[..., Rule]] = {
    "all keys": Rule,
    "those before": lambda **rule: Rule(causal=True, **rule),
    "those near": lambda **rule: Rule(window=9, **rule),
}


def random(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def bounds_of(wanted: str) -> tuple[Bounds, Tensor]:
    """Of a batch with tokens that are not attended to, and which of its rows are wanted."""
    encoded = [
        Encoded(np.arange(length, dtype=np.int32), attended=attended)
        for length, attended in zip(LENGTHS, ATTENDED, strict=True)
    ]
    packed = Packed.of(Batch.pack(encoded, [ReadKey("embed")] * len(encoded)), torch.device("cpu"), WANTED[wanted])
    if packed.kept is None:
        return packed.bounds, torch.arange(sum(LENGTHS))
    return packed.kept.bounds, packed.kept.rows_Q


@pytest.mark.parametrize("isa", cenote_kernels.isas() if cenote_kernels.why_not() is None else ())
@pytest.mark.parametrize("kinds", ["both", "keys", "queries"])
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("wanted", WANTED)
def test_kernels_score_distances_as_pytorch_does(wanted: str, seen: str, kinds: str, isa: str) -> None:
    kernels, rows = Kernels(isa), buckets(FARTHEST + 1, NUM_BUCKETS, FARTHEST) + NUM_BUCKETS
    rows.clamp_(0, 2 * NUM_BUCKETS - 1)
    key = random(0, 2 * NUM_BUCKETS, HEADS, SIZE) if kinds != "queries" else None
    query = random(1, 2 * NUM_BUCKETS, HEADS, SIZE) if kinds != "keys" else None
    content = Disentangled(rows, *(None if table is None else SCALE * table for table in (key, query))).between
    by_pytorch = SEEN[seen](scale=SCALE, content=content)
    by_kernels = SEEN[seen](scale=SCALE, distances=DistanceTables(kernels, rows, key, query))
    bounds, rows_Q = bounds_of(wanted)
    query_THK, key_THK, value_THK = random(2, sum(LENGTHS), 3 * HEADS, SIZE).split(HEADS, dim=1)

    ours = attend(query_THK[rows_Q], key_THK, value_THK, bounds, by_kernels, kernels)

    theirs = attend(query_THK[rows_Q], key_THK, value_THK, bounds, by_pytorch)
    assert (ours - theirs).abs().max() <= 3e-6 * theirs.abs().max()
