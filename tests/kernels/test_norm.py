"""Layer norm of a sum: values, strides, edges, and rows that know nothing of each other."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Literal

import numpy as np
import pytest

import cenote_kernels
from cenote.types import FloatArray, IntArray
from cenote_kernels import Kernels
from support.guarded import guarded

SIZES = (1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 100, 384)
EPS = 1e-6


def add_norm(
    kernels: Kernels, rows: FloatArray, added: FloatArray | None, weight: FloatArray, bias: FloatArray | None
) -> FloatArray:
    """Call the kernel on rows whose columns lie side by side; the result lies against a guard too."""
    out = guarded(np.full(rows.shape, np.nan, np.float32))
    pointers = [0 if array is None else array.ctypes.data for array in (rows, added, weight, bias)]
    steps = [0 if array is None else array.strides[0] // 4 for array in (rows, added)]
    kernels.add_norm(out.ctypes.data, *pointers, EPS, *rows.shape, *steps)
    return out


def expected(rows: FloatArray, added: FloatArray | None, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
    """The same in float64."""
    summed = rows.astype(np.float64) + (0 if added is None else added)
    centred = summed - summed.mean(1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + EPS) * weight
    return np.asarray(scaled if bias is None else scaled + bias)


def made(seed: int, *shape: int) -> FloatArray:
    """Random float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("side", ["start", "end"])
def test_values(kernels: Kernels, size: int, side: Literal["start", "end"]) -> None:
    for num, with_added, with_bias in product((0, 1, 2, 13, 33), (True, False), (True, False)):
        check(kernels, num, size, with_added, with_bias, side)


def check(
    kernels: Kernels, num: int, size: int, with_added: bool, with_bias: bool, side: Literal["start", "end"]
) -> None:
    """Compare one call."""
    rows, weight = guarded(made(1, num, size) + 3, side), guarded(made(2, size), side)
    added = guarded(made(3, num, size), side) if with_added else None
    bias = guarded(made(4, size), side) if with_bias else None
    found = add_norm(kernels, rows, added, weight, bias)
    wanted = expected(rows, added, weight, bias)
    assert found.shape == (num, size)
    # What float32 cannot hold of values far from zero, in units of their deviation.
    summed = rows.astype(np.float64) + (0 if added is None else added)
    lost = np.abs(summed).max(1, initial=0) / np.sqrt(summed.var(1) + EPS) * np.abs(weight).max()
    assert (np.abs(found - wanted) <= 2e-6 * (1 + lost[:, None] + np.abs(wanted))).all()


@pytest.mark.parametrize("size", SIZES)
def test_rows_with_space_between_them(kernels: Kernels, size: int) -> None:
    wide, other = made(5, 9, 2 * size + 3), made(6, 9, size + 1)
    rows, added, weight = wide[:, 2 : 2 + size], other[:, 1:], made(7, size)
    found = add_norm(kernels, rows, added, weight, None)
    assert (found == add_norm(kernels, rows.copy(), added.copy(), weight, None)).all()


@pytest.mark.parametrize("size", SIZES)
def test_a_row_is_the_same_alone_and_among_others(kernels: Kernels, size: int) -> None:
    rows, added, weight, bias = made(8, 21, size), made(9, 21, size), made(10, size), made(11, size)
    together = add_norm(kernels, rows, added, weight, bias)
    alone = [add_norm(kernels, rows[n : n + 1], added[n : n + 1], weight, bias) for n in range(len(rows))]
    assert (together == np.concatenate(alone)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_in_its_row_alone(kernels: Kernels, bad: float) -> None:
    rows = made(12, 5, 37)
    rows[2, 36] = bad
    found = add_norm(kernels, rows, None, made(13, 37), made(14, 37))
    assert np.isfinite(found).all(axis=1).tolist() == [True, True, False, True, True]
    assert not np.isfinite(found[2]).any()


def test_great_values_and_tiny_ones(kernels: Kernels) -> None:
    rows = made(15, 4, 100) * np.array([[1e15], [1e-20], [1e-40], [0]], np.float32)
    weight, bias = made(16, 100), made(17, 100)
    found, wanted = add_norm(kernels, rows, None, weight, bias), expected(rows, None, weight, bias)
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()


def embed_norm(
    kernels: Kernels,
    tables: Sequence[tuple[FloatArray, IntArray | None]],
    weight: FloatArray,
    bias: FloatArray,
    num: int,
    scales: FloatArray | None = None,
) -> FloatArray | None:
    """Call the kernel; None where it found no such row."""
    out = guarded(np.full((num, len(weight)), np.nan, np.float32))
    found = [(rows.ctypes.data, 0 if ids is None else ids.ctypes.data, len(rows)) for rows, ids in tables]
    addresses, norm = np.array(found, np.int64), (weight.ctypes.data, bias.ctypes.data, EPS)
    more = 0 if scales is None else scales.ctypes.data
    failed = kernels.embed_norm(out.ctypes.data, addresses.ctypes.data, len(found), *norm, more, *out.shape)
    return None if failed else out


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_tables", [1, 2, 3])
def test_rows_of_tables(kernels: Kernels, size: int, num_tables: int) -> None:
    weight, bias, num = guarded(made(20, size)), guarded(made(21, size)), 19
    ids = [np.random.default_rng(n).integers(0, 7 - n, num).astype(np.int32) for n in range(3)]
    tables = [(guarded(made(22 + n, 7 - n, size)), ids[n]) for n in range(num_tables)]
    scales = guarded(np.full(num, np.nan, np.float32))
    found = embed_norm(kernels, tables, weight, bias, num, scales)
    assert found is not None
    summed = tables[0][0][ids[0]]
    for rows, at in tables[1:]:
        summed = summed + rows[at]
    assert np.allclose(scales, (summed.var(1, dtype=np.float64) + EPS) ** -0.5, rtol=2e-6)
    assert (found == add_norm(kernels, np.ascontiguousarray(summed), None, weight, bias)).all()
    firsts = embed_norm(kernels, [(tables[0][0], ids[0]), (tables[-1][0], None)], weight, bias, num)
    zeros = embed_norm(kernels, [(tables[0][0], ids[0]), (tables[-1][0], 0 * ids[0])], weight, bias, num)
    assert firsts is not None
    assert zeros is not None
    assert (firsts == zeros).all()


@pytest.mark.parametrize("beyond", [-1, 5, 2**31 - 1])
def test_a_row_that_no_table_has(kernels: Kernels, beyond: int) -> None:
    rows, weight = made(30, 5, 20), made(31, 20)
    ids = np.array([0, 4, beyond], np.int32)
    assert embed_norm(kernels, [(rows, ids)], weight, weight, 3) is None
    assert embed_norm(kernels, [(rows, np.zeros(3, np.int32)), (rows, ids)], weight, weight, 3) is None
    assert embed_norm(kernels, [(rows, ids[:2])], weight, weight, 2) is not None


def sum_norm(
    kernels: Kernels, rows: FloatArray, added: FloatArray | None, weight: FloatArray, *, centred: bool
) -> FloatArray:
    """Call the kernel that keeps the sum: in `added`."""
    out = guarded(np.full(rows.shape, np.nan, np.float32))
    addresses = [0 if array is None else array.ctypes.data for array in (added, rows, weight, None)]
    kernels.sum_norm(out.ctypes.data, *addresses, EPS, *rows.shape, rows.strides[0] // 4, centred)
    return out


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("centred", [True, False])
def test_norms_that_keep_the_sum(kernels: Kernels, size: int, centred: bool) -> None:
    for num, side in product((0, 1, 5), ("start", "end")):
        end: Literal["start", "end"] = "start" if side == "start" else "end"
        rows, added, weight = guarded(made(18, num, size), end), guarded(made(19, num, size), end), made(20, size)
        wanted = rows + added
        exact = wanted.astype(np.float64)
        exact = exact - exact.mean(1, keepdims=True) if centred else exact
        exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + EPS) * weight
        found = sum_norm(kernels, rows, added, weight, centred=centred)
        assert (added == wanted).all()
        lost = np.abs(wanted).max(1, initial=0) / np.sqrt(wanted.var(1) + EPS) if centred else np.zeros(num)
        assert (np.abs(found - exact) <= 2e-6 * (1 + lost[:, None] + np.abs(exact))).all()
        assert (found == sum_norm(kernels, wanted, None, weight, centred=centred)).all()
        alone = [sum_norm(kernels, wanted[n : n + 1], None, weight, centred=centred) for n in range(num)]
        assert (found == np.concatenate([found[:0], *alone])).all()


@pytest.mark.parametrize("centred", [True, False])
def test_what_is_not_finite_stays_in_its_row_and_strides_do_not_matter(kernels: Kernels, centred: bool) -> None:
    wide, weight = made(21, 5, 90), made(22, 37)
    wide[2, 40] = np.nan
    rows = wide[:, 9:46]
    found = sum_norm(kernels, rows, None, weight, centred=centred)
    assert np.isfinite(found).all(axis=1).tolist() == [True, True, False, True, True]
    same = sum_norm(kernels, rows.copy(), None, weight, centred=centred)
    assert np.array_equal(found, same, equal_nan=True)


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("num_tables", [1, 2, 3])
def test_products_that_are_known(kernels: Kernels, width: int, num_tables: int) -> None:
    num, first, rng = 9, 4, np.random.default_rng(width)
    ids = [None if n == 2 else rng.integers(0, 6 - n, num).astype(np.int32) for n in range(num_tables)]
    tables = [guarded(made(40 + n, 6 - n, width)) for n in range(num_tables)]
    scales, bias = guarded(made(43, num)), guarded(made(44, width))
    found = [
        (rows.ctypes.data, 0 if at is None else at.ctypes.data, len(rows)) for rows, at in zip(tables, ids, strict=True)
    ]
    addresses = np.array(found, np.int64)
    record = cenote_kernels.Known(addresses.ctypes.data, num_tables, scales.ctypes.data, bias.ctypes.data)
    out = guarded(np.full((num - first, width), np.nan, np.float32))
    kernels.known_rows(out.ctypes.data, ctypes.addressof(record), first, *out.shape)
    summed = sum(
        rows[np.zeros(num, int) if at is None else at].astype(float) for rows, at in zip(tables, ids, strict=True)
    )
    wanted = (summed * scales[:, None] + bias)[first:]
    assert np.abs(out - wanted).max() <= 1e-6 * np.abs(wanted).max()
