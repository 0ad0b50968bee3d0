"""Linear layers: values where sizes fit no tile, activations, strides, and rows that know nothing of each other."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from cenote.layers.kernels import ACTIVATIONS
from cenote.layers.linear import ACTIVATIONS as TORCHS
from cenote.types import FloatArray
from cenote_kernels import Kernels
from support.guarded import guarded

COLUMNS = 32
"""At least those of a panel, for every instruction set."""
DEPTHS = (1, 2, 7, 16, 33, 100, 1024, 1537)
WIDTHS = (1, 7, 15, 16, 17, 31, 32, 33, 70)
ROWS = (0, 1, 2, 3, 5, *range(6, 10), *range(13, 22), 29, 33)


def made(seed: int, *shape: int) -> FloatArray:
    """Random float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def packed(kernels: Kernels, weight: FloatArray) -> FloatArray:
    """The weight in panels."""
    panels = np.empty(-(-len(weight) // COLUMNS) * COLUMNS * weight.shape[1], np.float32)
    kernels.pack(panels.ctypes.data, weight.ctypes.data, *weight.shape, weight.strides[0] // 4)
    return panels


def linear(
    kernels: Kernels,
    rows: FloatArray,
    weight: FloatArray,
    bias: FloatArray | None = None,
    activation: str | None = None,
    out: FloatArray | None = None,
) -> FloatArray:
    """Call the kernel; the result lies against a guard unless it is given."""
    out = guarded(np.full((len(rows), len(weight)), np.nan, np.float32)) if out is None else out
    steps = [rows.strides[0] // 4, out.strides[0] // 4]
    number = ACTIVATIONS[activation]
    panels = packed(kernels, weight)
    addresses = [out.ctypes.data, rows.ctypes.data, panels.ctypes.data]
    kernels.linear(*addresses, 0 if bias is None else bias.ctypes.data, *rows.shape, len(weight), *steps, number)
    return out


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("side", ["start", "end"])
def test_values(kernels: Kernels, depth: int, width: int, side: Literal["start", "end"]) -> None:
    weight, bias = guarded(made(1, width, depth), side), guarded(made(2, width), side)
    for num in ROWS:
        rows = guarded(made(3, num, depth), side)
        wanted = rows.astype(np.float64) @ weight.T.astype(np.float64)
        allowed = 1e-6 * (1 + np.abs(rows) @ np.abs(weight.T))
        assert (np.abs(linear(kernels, rows, weight) - wanted) <= allowed).all()
        assert (np.abs(linear(kernels, rows, weight, bias) - (wanted + bias)) <= allowed + 1e-6).all()


@pytest.mark.parametrize("depth", [3, 100, 1024, 2000])
def test_a_row_is_the_same_alone_and_among_others(kernels: Kernels, depth: int) -> None:
    rows, weight, bias = made(4, 131, depth), made(5, 70, depth), made(6, 70)
    together = linear(kernels, rows, weight, bias, "gelu")
    for count in (1, 2, 5, 7, 8, 13, 15, 17, 19, 30):
        parts = [linear(kernels, rows[n : n + count], weight, bias, "gelu") for n in range(0, len(rows), count)]
        assert (together == np.concatenate(parts)).all()


def test_rows_and_results_with_space_between_them(kernels: Kernels) -> None:
    wide, weights, out = made(7, 20, 130), made(8, 33, 75), np.full((20, 90), 7, np.float32)
    rows, weight = wide[:, 3:73], weights[:, 5:]
    linear(kernels, rows, weight, None, "relu", out[:, 50:83])
    assert (out[:, 50:83] == linear(kernels, rows.copy(), weight.copy(), None, "relu")).all()
    assert (out[:, :50] == 7).all()
    assert (out[:, 83:] == 7).all()


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name is not None])
@pytest.mark.parametrize("count", [1, 16, 33])
def test_activations(kernels: Kernels, activation: str, count: int) -> None:
    values = np.concatenate([np.linspace(-9, 9, 4001), [-1e30, -1e6, -100, -88, 88, 100, 1e6, 1e30, 1e-30, -1e-40, 0]])
    rows = values.astype(np.float32)[:, None]
    weight = np.ones((count, 1), np.float32)
    found = linear(kernels, rows, weight, None, activation)
    wanted = TORCHS[activation](torch.from_numpy(rows).double()).numpy()
    # A product that cancels keeps the rounding of its factors, and what is as good as zero need not be zero.
    allowed = 4e-7 * np.maximum(1, np.abs(rows)) if activation.startswith("gelu") else 3e-7 * np.abs(wanted)
    assert (np.abs(found - wanted) <= allowed + 1e-38 * np.maximum(1, np.abs(rows))).all()


def test_gelu_of_large_values_is_exact(kernels: Kernels) -> None:
    rows = np.concatenate([np.linspace(6, 100, 1001), [1e6, 1e30]]).astype(np.float32)[:, None]
    weight = np.ones((1, 1), np.float32)
    assert (linear(kernels, rows, weight, None, "gelu") == rows).all()
    assert (linear(kernels, -rows, weight, None, "gelu") == 0).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_stays_and_no_row_spreads_it(kernels: Kernels, activation: str | None) -> None:
    rows = made(9, 17, 40)
    rows[4, 39], rows[9, 0] = np.nan, np.nan
    found = linear(kernels, rows, made(10, 50, 40), made(11, 50), activation)
    assert np.flatnonzero(np.isnan(found).all(axis=1)).tolist() == [4, 9]
    assert np.isfinite(np.delete(found, [4, 9], axis=0)).all()


def test_tiny_values_are_kept(kernels: Kernels) -> None:
    rows, weight = made(12, 5, 30) * np.float32(1e-30), made(13, 8, 30) * np.float32(1e-12)
    wanted = rows.astype(np.float64) @ weight.T.astype(np.float64)
    assert np.abs(linear(kernels, rows, weight) - wanted).max() <= 1e-44 * 40
