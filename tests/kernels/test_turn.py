"""Rotary positions and norms of heads in place: sizes that fit no vector, heads turned in part, and strides."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cenote.types import FloatArray
from cenote_kernels import Kernels
from support.guarded import guarded

SIZES = ((2, 1), (7, 2), (8, 4), (16, 8), (33, 15), (40, 20), (64, 32), (80, 16), (128, 64))
"""Of a head, and how many pairs of it are turned."""
EPS = 1e-3


def made(seed: int, *shape: int) -> FloatArray:
    """Random float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def turn(
    kernels: Kernels, rows: FloatArray, cos: FloatArray, sin: FloatArray, weight: FloatArray | None = None
) -> FloatArray:
    """Call the kernel on rows `[T, H, K]` whose heads lie side by side; gives them back."""
    num, heads, size = rows.shape
    pointers = [array.ctypes.data for array in (rows, cos, sin)]
    address = 0 if weight is None else weight.ctypes.data
    kernels.turn(*pointers, address, EPS, num, heads, size, cos.shape[1], rows.strides[0] // 4)
    return rows


def expected(rows: FloatArray, cos: FloatArray, sin: FloatArray, weight: FloatArray | None) -> FloatArray:
    """The same in float64."""
    exact, pairs = rows.astype(np.float64), cos.shape[1]
    if weight is not None:
        exact = exact / np.sqrt((exact**2).mean(2, keepdims=True) + EPS) * weight
    left, right, rest = np.split(exact, [pairs, 2 * pairs], axis=2)
    c, s = cos[:, None].astype(np.float64), sin[:, None].astype(np.float64)
    return np.concatenate([left * c - right * s, right * c + left * s, rest], axis=2)


@pytest.mark.parametrize(("size", "pairs"), SIZES)
def test_values(kernels: Kernels, size: int, pairs: int) -> None:
    for num, heads, normed in product((0, 1, 5), (1, 3), (True, False)):
        rows, weight = made(1, num, heads, size), guarded(made(2, size)) if normed else None
        cos, sin = guarded(made(3, num, pairs)), guarded(made(4, num, pairs))
        for side in ("start", "end"):
            found = turn(kernels, guarded(rows, "start" if side == "start" else "end"), cos, sin, weight)
            wanted = expected(rows, cos, sin, weight)
            assert (np.abs(found - wanted) <= 2e-6 * (1 + np.abs(wanted))).all()


@pytest.mark.parametrize(("size", "pairs"), SIZES)
def test_only_the_rows_are_touched_and_none_knows_another(kernels: Kernels, size: int, pairs: int) -> None:
    wide, weight, cos, sin = made(5, 9, 2 * size + 7), made(6, size), made(7, 9, pairs), made(8, 9, pairs)
    before = wide.copy()
    inside = wide[:, 3 : 3 + 2 * size].reshape(9, 2, size)
    assert np.shares_memory(inside, wide)
    same = inside.copy()
    turn(kernels, inside, cos, sin, weight)
    alone = [turn(kernels, same[n : n + 1], cos[n : n + 1], sin[n : n + 1], weight) for n in range(9)]
    assert (inside == np.concatenate(alone)).all()
    assert (wide[:, :3] == before[:, :3]).all()
    assert (wide[:, 3 + 2 * size :] == before[:, 3 + 2 * size :]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_head(kernels: Kernels, bad: float) -> None:
    rows, cos, sin = made(9, 4, 3, 24), made(10, 4, 12), made(11, 4, 12)
    rows[2, 1, 23] = bad
    found = turn(kernels, rows, cos, sin, made(12, 24))
    assert np.argwhere(~np.isfinite(found).all(axis=2)).tolist() == [[2, 1]]
