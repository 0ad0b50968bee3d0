"""Attention by the kernels: sizes that fit no tile, long texts, great scores, and sequences that know no others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cenote.types import FloatArray
from cenote_kernels import Kernels
from support.guarded import guarded

SIZES = (1, 7, 8, 16, 31, 32, 33, 64, 128)
LENGTHS = (1, 2, 5, 6, 7, 13, 14, 15, 16, 17, 29, 32, 33, 64, 65, 127)
HEADS = 2


def attend(
    kernels: Kernels, qkv: FloatArray, lengths: tuple[int, ...], *, causal: bool = False, window: int = -1
) -> FloatArray:
    """Queries, keys and values `[T, 3, H, K]` side by side; the result lies against a guard."""
    num, _, heads, size = qkv.shape
    starts = np.cumsum([0, *lengths])
    runs = np.array([(a, a, 1, n, n, n) for a, n in zip(starts[:-1], lengths, strict=True)], np.int32)
    out = guarded(np.full((num, heads * size), np.nan, np.float32))
    parts = [qkv.ctypes.data + 4 * heads * size * part for part in range(3)]
    steps = [qkv.strides[0] // 4] * 3
    shape = heads, heads, size, size**-0.5
    failed = kernels.attend(out.ctypes.data, *parts, *steps, *shape, causal, window, 0, runs.ctypes.data, len(runs), 0)
    assert not failed
    return out


def expected(qkv: FloatArray, lengths: tuple[int, ...], *, causal: bool = False, window: int = -1) -> FloatArray:
    """The same in float64."""
    rows = []
    starts = np.cumsum([0, *lengths])
    for first, count in zip(starts[:-1], lengths, strict=True):
        query, key, value = qkv[first : first + count].astype(np.float64).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) * qkv.shape[3] ** -0.5
        away = np.arange(count)[:, None] - np.arange(count)
        hidden = ((away < 0) & causal) | ((np.abs(away) > window) & (window >= 0))
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        rows.append((weights / weights.sum(2, keepdims=True) @ value).transpose(1, 0, 2).reshape(count, -1))
    return np.concatenate(rows)


def made(seed: int, num: int, size: int, heads: int = HEADS) -> FloatArray:
    """Random rows, against a guard on the right."""
    return guarded(np.random.default_rng(seed).normal(size=(num, 3, heads, size)).astype(np.float32))


@pytest.mark.parametrize("size", SIZES)
def test_values(kernels: Kernels, size: int) -> None:
    for lengths, causal, window in product(
        (LENGTHS, (139, 170), (200,), *((n,) for n in LENGTHS)), (False, True), (-1, 0, 9)
    ):
        qkv = made(1, sum(lengths), size)
        ours = attend(kernels, qkv, lengths, causal=causal, window=window)
        theirs = expected(qkv, lengths, causal=causal, window=window)
        assert np.abs(ours - theirs).max() <= 2e-6 * np.abs(theirs).max()


def test_a_long_text(kernels: Kernels) -> None:
    qkv = made(2, 3000, 32, heads=1)
    ours, theirs = attend(kernels, qkv, (3000,)), expected(qkv, (3000,))
    assert np.abs(ours - theirs).max() <= 2e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("size", [7, 32, 64])
@pytest.mark.parametrize("causal", [False, True])
def test_a_sequence_is_the_same_alone_and_among_others(kernels: Kernels, size: int, causal: bool) -> None:
    qkv, starts = made(3, sum(LENGTHS), size), np.cumsum([0, *LENGTHS])
    together = attend(kernels, qkv, LENGTHS, causal=causal)
    alone = [
        attend(kernels, guarded(qkv[a : a + n].copy()), (n,), causal=causal)
        for a, n in zip(starts[:-1], LENGTHS, strict=True)
    ]
    assert (together == np.concatenate(alone)).all()


@pytest.mark.parametrize("size", [7, 32, 64])
@pytest.mark.parametrize("length", [5, 16, 17, 40, 64, 65, 128, 129, 139, 170])
@pytest.mark.parametrize("window", [-1, 0, 9, 40])
def test_a_row_is_the_same_alone_and_among_others(kernels: Kernels, size: int, length: int, window: int) -> None:
    qkv = made(6, length, size)
    together = attend(kernels, qkv, (length,), window=window)
    queries, keys, values = (qkv.ctypes.data + 4 * HEADS * size * part for part in range(3))
    for first, count in ((0, 1), (length - 1, 1), (1, 4), (length // 3, length // 2)):
        out, run = (
            guarded(np.empty((count, HEADS * size), np.float32)),
            np.array([0, 0, 1, count, length, length], np.int32),
        )
        step, index = qkv.strides[0], np.arange(first, first + count)
        addresses = out.ctypes.data, queries + first * step, keys, values
        shape = HEADS, HEADS, size, size**-0.5
        assert not kernels.attend(
            *addresses, *[step // 4] * 3, *shape, False, window, index.ctypes.data, run.ctypes.data, 1, 0
        )
        assert (out == together[first : first + count]).all()


@pytest.mark.parametrize("length", [1, 16, 65, 128, 139])
def test_a_window_as_wide_as_the_text_is_none(kernels: Kernels, length: int) -> None:
    qkv = made(8, length, 64)
    whole = attend(kernels, qkv, (length,))
    for window in (length - 1, length, 4 * length):
        assert (attend(kernels, qkv, (length,), window=window) == whole).all()


@pytest.mark.parametrize("length", [3, 20, 200])
def test_heads_that_share_keys(kernels: Kernels, length: int) -> None:
    size, heads = 32, 6
    shared = made(7, length, size, heads)
    shared[:, 1:] = shared[:, 1:, ::3].repeat(3, axis=2)
    out, run = np.empty((length, heads * size), np.float32), np.array([0, 0, 1, length, length, length], np.int32)
    few = np.ascontiguousarray(shared[:, 1:, ::3])
    addresses = out.ctypes.data, shared.ctypes.data, few.ctypes.data, few.ctypes.data + 4 * 2 * size
    steps = 3 * heads * size, 4 * size, 4 * size
    assert not kernels.attend(*addresses, *steps, heads, 2, size, size**-0.5, False, -1, 0, run.ctypes.data, 1, 0)
    assert (out == attend(kernels, shared, (length,))).all()


@pytest.mark.parametrize("length", [40, 163])
def test_great_scores_leave_one_key(kernels: Kernels, length: int) -> None:
    qkv = made(4, length, 32)
    qkv[:, :2] *= 1e6
    ours, theirs = attend(kernels, qkv, (length,)), expected(qkv, (length,))
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows_in_its_sequence_alone(kernels: Kernels, part: int, bad: float) -> None:
    qkv = made(5, 30, 32)
    qkv[13, part, 0, 5] = bad
    rows = attend(kernels, qkv, (10, 8, 12))
    finite = [bool(np.isfinite(row).all()) for row in rows]
    assert all(finite[:10])
    assert not all(finite[10:18])
    assert all(finite[18:])
