"""A whole encoder layer in one call gives what its parts give one after another, bit for bit.

Keys and values of sequences of which one row is read may be left out, which gives the same but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from cenote.layers.kernels import ACTIVATIONS
from cenote.types import FloatArray
from cenote_kernels import Kernels
from support.guarded import guarded

EPS = 1e-5
# Heads, their size, and the size inside the feed-forward.
SIZES = ((1, 1, 1), (2, 3, 50), (3, 11, 100), (4, 16, 64), (2, 33, 31), (6, 32, 1537))
LENGTHS = (1, 9, 2, 2, 40, 33, 1)
COLUMNS = 32
"""At least those of a panel, for every instruction set."""

Side = Literal["start", "end"]


@dataclass
class Weights:
    """Random weights of a layer; packed ones against a guard on the right, as all others on `side`."""

    kernels: Kernels
    heads: int
    size: int
    inner: int
    activation: str | None = None
    bias: bool = True
    side: Side = "end"
    held: dict[str, tuple[FloatArray, FloatArray | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.size + self.inner)
        size, inner = self.size, self.inner
        shapes = {"query": (size, size), "key_value": (2 * size, size), "out": (size, size)}
        shapes |= {"up": (inner, size), "down": (size, inner)}
        plain = {
            name: (
                (rng.normal(size=shape) * shape[1] ** -0.5).astype(np.float32),
                guarded(rng.normal(size=shape[0]).astype(np.float32), self.side) if self.bias else None,
            )
            for name, shape in shapes.items()
        }
        (query, query_bias), (others, other_bias) = plain["query"], plain["key_value"]
        bias = None if query_bias is None or other_bias is None else np.concatenate([query_bias, other_bias])
        plain["qkv"] = np.concatenate([query, others]), bias
        plain["turned_key"] = np.ascontiguousarray(others[:size].T), None
        self.held = {name: (self._packed(weight), bias) for name, (weight, bias) in plain.items()}
        for name in ("attention_norm", "norm"):
            weight, shift = (guarded(rng.normal(size=size).astype(np.float32), self.side) for _ in range(2))
            self.held[name] = weight, shift if self.bias else None

    def _packed(self, weight: FloatArray) -> FloatArray:
        width, depth = weight.shape
        panels = guarded(np.zeros(-(-width // COLUMNS) * COLUMNS * depth, np.float32))
        self.kernels.pack(panels.ctypes.data, weight.ctypes.data, width, depth, depth)
        return panels

    def addresses(self, name: str) -> tuple[int, int]:
        """Of a weight and of its bias."""
        weight, bias = self.held[name]
        return weight.ctypes.data, 0 if bias is None else bias.ctypes.data

    def times(self, rows: FloatArray, name: str, width: int, activation: str | None = None) -> FloatArray:
        """One product by the kernel of its own."""
        out = np.empty((len(rows), width), np.float32)
        panels, bias = self.addresses(name)
        depth = rows.shape[1]
        sizes = len(rows), depth, width, depth, width
        self.kernels.linear(out.ctypes.data, rows.ctypes.data, panels, bias, *sizes, ACTIVATIONS[activation])
        return out

    def added(self, rows: FloatArray, added: FloatArray, name: str) -> FloatArray:
        """One norm by the kernel of its own."""
        out = np.empty_like(rows)
        num, size = rows.shape
        where = out.ctypes.data, rows.ctypes.data, added.ctypes.data, *self.addresses(name)
        self.kernels.add_norm(*where, EPS, num, size, size, size)
        return out


@dataclass
class Call:
    """What both ways are asked."""

    lengths: Sequence[int] = LENGTHS
    chosen: Sequence[int] | None = None
    """Of each sequence the index of the one row that is wanted, or all."""
    causal: bool = False
    window: int = -1
    given: FloatArray | None = None
    """Rows in place of random ones."""

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *self.lengths])

    def rows(self, size: int, side: Side = "end") -> FloatArray:
        """Random rows of hidden states, or those given."""
        if self.given is not None:
            return guarded(self.given, side)
        num = int(sum(self.lengths))
        return guarded(np.random.default_rng(num).normal(size=(num, size)).astype(np.float32), side)

    def runs(self) -> NDArray[np.int32]:
        """As Python's `Run`, one for neighbouring sequences of equal lengths."""
        rows, done = [], 0
        for num, neighbours in groupby(self.lengths):
            first, count = int(self.starts[done]), len(list(neighbours))
            queries = (first, num) if self.chosen is None else (done, 1)
            rows.append((queries[0], first, count, queries[1], num, num))
            done += count
        return np.array(rows, np.int32).reshape(-1, 6)


def whole(weights: Weights, call: Call, side: Side = "end", *, without_keys: bool = False) -> FloatArray:
    """By one call; rows and results lie against a guard."""
    rows, runs = call.rows(weights.size, side), call.runs()
    positions = None if call.chosen is None else np.array(call.chosen, np.int64)
    some = None if positions is None else guarded(rows[call.starts[:-1] + positions], side)
    names = ("qkv", "query", "key_value", "out", "up", "down", "attention_norm", "norm")
    numbers = weights.size, weights.heads, weights.inner, ACTIVATIONS[weights.activation]
    turned = weights.addresses("turned_key")[0] if without_keys else 0
    layer = np.array([*(one for name in names for one in weights.addresses(name)), *numbers, turned], np.int64)
    out = guarded(np.full((rows if some is None else some).shape, np.nan, np.float32), side)
    given = (0, 0) if some is None else (some.ctypes.data, len(some))
    rule = (weights.size // weights.heads) ** -0.5, call.causal, call.window
    where = layer.ctypes.data, out.ctypes.data, rows.ctypes.data, len(rows), *given
    at = 0 if positions is None else positions.ctypes.data
    assert not weights.kernels.encoder_layer(*where, EPS, *rule, at, runs.ctypes.data, len(runs), 0)
    return out


def parts(weights: Weights, call: Call) -> FloatArray:
    """By the kernels of the parts."""
    size, heads = weights.size, weights.heads
    rows, runs = call.rows(size), call.runs()
    positions = None if call.chosen is None else np.array(call.chosen, np.int64)
    if positions is None:
        given, qkv = rows, weights.times(rows, "qkv", 3 * size)
        first, steps = [qkv.ctypes.data + 4 * size * part for part in range(3)], [3 * size] * 3
    else:
        given = rows[call.starts[:-1] + positions]
        query, key_value = weights.times(given, "query", size), weights.times(rows, "key_value", 2 * size)
        first = [query.ctypes.data, key_value.ctypes.data, key_value.ctypes.data + 4 * size]
        steps = [size, 2 * size, 2 * size]
    attended = np.empty_like(given)
    rule = heads, heads, size // heads, (size // heads) ** -0.5, call.causal, call.window
    at = 0 if positions is None else positions.ctypes.data
    assert not weights.kernels.attend(attended.ctypes.data, *first, *steps, *rule, at, runs.ctypes.data, len(runs), 0)
    hidden = weights.added(weights.times(attended, "out", size), given, "attention_norm")
    inner = weights.times(hidden, "up", weights.inner, weights.activation)
    return weights.added(weights.times(inner, "down", size), hidden, "norm")


@pytest.mark.parametrize(("heads", "head_size", "inner"), SIZES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("side", ["start", "end"])
def test_a_layer_is_its_parts(kernels: Kernels, heads: int, head_size: int, inner: int, bias: bool, side: Side) -> None:
    weights = Weights(kernels, heads, heads * head_size, inner, "gelu", bias, side)
    for call in (Call(), Call(lengths=(1,)), Call(chosen=(0, 8, 1, 0, 20, 32, 0)), Call(causal=True, window=5)):
        found = whole(weights, call, side)
        assert np.isfinite(found).all()
        assert (found == parts(weights, call)).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(kernels: Kernels, activation: str | None) -> None:
    weights = Weights(kernels, 2, 24, 70, activation)
    assert (whole(weights, Call()) == parts(weights, Call())).all()


@pytest.mark.parametrize("inner", [300, 3100, 5000])
def test_more_rows_than_a_block(kernels: Kernels, inner: int) -> None:
    weights, call = Weights(kernels, 2, 24, inner, "gelu"), Call(lengths=(130, 7, 299, 300))
    assert (whole(weights, call) == parts(weights, call)).all()


@pytest.mark.parametrize("causal", [True, False])
def test_more_sequences_than_a_group(kernels: Kernels, causal: bool) -> None:
    lengths = (*range(1, 41), 300, *(7,) * 50, 127, 126, 125)
    chosen = [min(length - 1, 3) for length in lengths]
    weights = Weights(kernels, 2, 24, 70, "gelu")
    for call in (Call(lengths, causal=causal), Call(lengths, chosen, causal)):
        assert (whole(weights, call) == parts(weights, call)).all()


def test_no_rows(kernels: Kernels) -> None:
    assert whole(Weights(kernels, 2, 24, 70), Call(lengths=())).shape == (0, 24)


@pytest.mark.parametrize(("heads", "head_size"), [(1, 32), (5, 32), (3, 64), (2, 96), (40, 32)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("side", ["start", "end"])
def test_one_row_without_keys(kernels: Kernels, heads: int, head_size: int, bias: bool, side: Side) -> None:
    lengths = (1, 9, 2, 4, 4, 3, 40, *(5,) * 50, 140, 600, 3)
    chosen = [min(length - 1, 7 * number % 11) for number, length in enumerate(lengths)]
    weights, call = Weights(kernels, heads, heads * head_size, 50, "gelu", bias, side), Call(lengths, chosen)
    found, expected = whole(weights, call, side, without_keys=True), parts(weights, call)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    few = np.array(lengths) < 4
    assert (found[few] == expected[few]).all()
    assert (found[~few] != expected[~few]).any()


def test_one_row_does_not_depend_on_its_batch(kernels: Kernels) -> None:
    weights, lengths = Weights(kernels, 4, 128, 50, "gelu"), (9, 3, 5, 5, 200, 1, 17)
    call = Call(lengths, (0, 2, 4, 0, 150, 0, 16))
    together, rows = whole(weights, call, without_keys=True), call.rows(weights.size)
    for number, (start, end) in enumerate(pairwise(call.starts)):
        alone = Call((int(end - start),), (call.chosen[number],) if call.chosen else None, given=rows[start:end])
        assert (whole(weights, alone, without_keys=True)[0] == together[number]).all()


@pytest.mark.parametrize(("causal", "window"), [(True, -1), (False, 6)])
def test_a_row_that_does_not_see_all_has_keys(kernels: Kernels, causal: bool, window: int) -> None:
    weights = Weights(kernels, 2, 64, 70)
    for call in (
        Call(chosen=(0, 8, 1, 0, 20, 32, 0), causal=causal, window=window),
        Call(causal=causal, window=window),
    ):
        assert (whole(weights, call, without_keys=True) == parts(weights, call)).all()


def test_all_rows_have_keys(kernels: Kernels) -> None:
    weights = Weights(kernels, 2, 64, 70)
    assert (whole(weights, Call(), without_keys=True) == parts(weights, Call())).all()
