"""Attention in int8: values, edges, sequences that know nothing of each other, and what is not finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cenote.layers import int8
from cenote.layers.attention import PLAIN, Rule
from cenote.layers.kernels import Kernels
from cenote.layers.packed import Bounds, find_runs
from cenote_kernels import Kernels as Functions

SHAPES = ((1, 1, 1), (5, 2, 7), (16, 12, 32), (33, 3, 64), (130, 2, 40), (163, 4, 32))
Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def ours(kernels: Functions) -> Kernels:
    """The kernels of one instruction set, as layers take them."""
    return Kernels(kernels.isa)


def made(seed: int, num: int, heads: int, size: int) -> Parts:
    """Random queries, keys and values, side by side as a product gives them."""
    generator = torch.Generator().manual_seed(seed)
    parts = (torch.randn(num, 3 * heads * size, generator=generator) * 1.5).chunk(3, 1)
    query, key, value = (part.unflatten(1, (heads, size)) for part in parts)
    return query, key, value


def bounds_of(lengths: list[int], queries: list[int] | None = None) -> Bounds:
    """Of sequences of these lengths."""
    own = np.array(lengths, np.int32)
    asked = own if queries is None else np.array(queries, np.int32)
    none = torch.zeros(0, dtype=torch.int32)
    return Bounds(none, none, None, find_runs(asked, own, own))


def exact(parts: Parts, largest: int) -> torch.Tensor:
    """Attention of one sequence on what is left after rounding, in float64."""
    query, key, value = (part.transpose(0, 1).double() for part in parts)
    query, key, value = (
        (part / scale).round() * scale
        for part, scale in (
            (query, query.abs().amax(-1, keepdim=True) / 127),
            (key, key.abs().amax(-1, keepdim=True) / largest),
            (value, value.abs().amax(1, keepdim=True) / largest),
        )
    )
    scores = query @ key.transpose(1, 2) * query.shape[-1] ** -0.5
    powers = (torch.exp(scores - scores.amax(-1, keepdim=True)) * 255).round()
    return (powers @ value / powers.sum(-1, keepdim=True)).transpose(0, 1).flatten(1)


@pytest.mark.parametrize(("num", "heads", "size"), SHAPES)
def test_values(ours: Kernels, num: int, heads: int, size: int) -> None:
    parts = made(1, num, heads, size)
    found = int8.attend(ours, *parts, bounds_of([num]), PLAIN)
    wanted = exact(parts, 63 if ours.functions.saturates else 127)
    # A value that lies between two codes may fall to either.
    assert (found - wanted).abs().max() <= 0.02 * wanted.abs().max()
    assert (found - wanted).abs().mean() <= 2e-4
    query, key, value = (part.transpose(0, 1)[None] for part in parts)
    plain = torch.nn.functional.scaled_dot_product_attention(query, key, value)[0].transpose(0, 1).flatten(1)
    assert (found - plain).abs().mean() <= 0.03


def test_a_scale_of_ones_own(ours: Kernels) -> None:
    query, key, value = made(2, 20, 2, 16)
    found = int8.attend(ours, query, key, value, bounds_of([20]), Rule(scale=0.5))
    assert (found - int8.attend(ours, query * 2, key, value, bounds_of([20]), PLAIN)).abs().max() <= 1e-5


def test_a_sequence_is_the_same_alone_and_among_others(ours: Kernels) -> None:
    lengths = [1, 40, 3, 17, 17, 64]
    parts = made(3, sum(lengths), 3, 32)
    together = int8.attend(ours, *parts, bounds_of(lengths), PLAIN)
    queries, keys, values = (part.split(lengths) for part in parts)
    alone = [
        int8.attend(ours, query, key, value, bounds_of([len(query)]), PLAIN)
        for query, key, value in zip(queries, keys, values, strict=True)
    ]
    assert torch.equal(together, torch.cat(alone))


def test_a_query_is_the_same_alone_and_among_others(ours: Kernels) -> None:
    query, key, value = made(4, 50, 3, 32)
    whole = int8.attend(ours, query, key, value, bounds_of([30, 20]), PLAIN)
    rows = torch.tensor([0, 30])
    found = int8.attend(ours, query[rows], key, value, bounds_of([30, 20], [1, 1]), PLAIN)
    assert torch.equal(found, whole[rows])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_not_finite_reaches_its_sequence_alone(ours: Kernels, bad: float, part: int) -> None:
    parts = made(5, 40, 2, 24)
    parts[part][25, 1, 3] = bad
    found = int8.attend(ours, *parts, bounds_of([20, 20]), PLAIN)
    assert found[:20].isfinite().all()
    assert not found[25].isfinite().all()


def test_zeros(ours: Kernels) -> None:
    query, key, value = (torch.zeros(9, 2, 8) for _ in range(3))
    assert not int8.attend(ours, query, key, value, bounds_of([9]), PLAIN).any()


def test_why_not() -> None:
    assert int8.why_not_attend(Rule(scale=2.0), bounds_of([3])) is None
    assert "mask" in (int8.why_not_attend(Rule(causal=True), bounds_of([3])) or "")
    assert "32 bits" in (int8.why_not_attend(PLAIN, bounds_of([70_000])) or "")
