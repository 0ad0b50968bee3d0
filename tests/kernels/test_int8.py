"""Linear layers in int8: exact sums on every instruction set, extremes, and rows that know nothing of each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cenote.layers.int8 import Int8Product
from cenote.layers.kernels import ACTIVATIONS, Kernels
from cenote.layers.linear import ACTIVATIONS as FUNCTIONS
from cenote_kernels import Kernels as Functions
from support.guarded import guarded

SHAPES = ((1, 1, 1), (1, 33, 7), (3, 7, 29), (5, 1536, 33), (17, 100, 3), (49, 384, 65), (100, 65, 130))


@pytest.fixture
def ours(kernels: Functions) -> Kernels:
    """The kernels of one instruction set, as layers take them."""
    return Kernels(kernels.isa)


def made(seed: int, *shape: int) -> torch.Tensor:
    """Random float32 of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * torch.rand(shape[0], 1, generator=generator) * 9


def exact(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, largest: int) -> torch.Tensor:
    """The product of what is left after rounding, with sums in float64."""
    least, most = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    inverse = 255 / (most - least).clamp(min=1e-30)
    zero = (-least * inverse).round()
    codes = ((rows * inverse).round() + zero).clamp(0, 255)
    scale = (weight.abs().amax(1, keepdim=True) / largest).clamp(min=1e-12)
    sums = (codes - zero).double() @ (weight / scale).round().double().T
    out = sums * ((most - least).clamp(min=1e-30) / 255).double() * scale.T.double()
    return out if bias is None else out + bias


@pytest.mark.parametrize(("num", "depth", "width"), SHAPES)
def test_sums_are_exact(ours: Kernels, num: int, depth: int, width: int) -> None:
    weight, rows = made(1, width, depth), made(2, num, depth)
    for bias in (None, made(3, width, 1)[:, 0]):
        found = Int8Product(weight, bias, ours)(rows)
        wanted = exact(rows, weight, bias, 63 if ours.functions.saturates else 127)
        assert (found - wanted).abs().max() <= 3e-7 * wanted.abs().max()


def test_every_instruction_set_and_pytorch_have_the_same_integers(ours: Kernels) -> None:
    # Of few levels on both sides, so that nothing is rounded and all ranges of codes give one result.
    weight, rows = torch.randint(-1, 2, (65, 390)).float(), torch.randint(0, 2, (37, 390)) * 255.0
    weight[:, 0], rows[:, 0] = 1, 255
    assert torch.equal((Int8Product(weight, None, ours)(rows) / 255).round(), (rows @ weight.T / 255).round())
    assert (Int8Product(weight, None, ours)(rows) - Int8Product(weight)(rows)).abs().max() <= 1e-6 * 255 * 390


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_codes_do_not_saturate(ours: Kernels, sign: float) -> None:
    rows, weight = torch.full((37, 390), 3.0), torch.full((65, 390), sign * 2.0)
    found = Int8Product(weight, None, ours)(rows)
    assert (found - rows @ weight.T).abs().max() <= 1e-5 * 390 * 6


def test_rows_and_columns_of_zeros_stay_zero(ours: Kernels) -> None:
    weight = made(4, 5, 9)
    weight[2] = 0
    out = Int8Product(weight, None, ours)(torch.cat([torch.zeros(1, 9), torch.ones(1, 9), torch.full((1, 9), 1e-40)]))
    assert not out[0].any()
    assert out[1, 2] == 0
    assert out[1, [0, 1, 3, 4]].all()
    assert out[2].abs().max() <= 1e-28


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
def test_activations(ours: Kernels, activation: str) -> None:
    product = Int8Product(made(5, 70, 33), made(6, 70, 1)[:, 0], ours)
    rows = made(7, 30, 33)
    wanted = FUNCTIONS[activation](product(rows))
    assert (product(rows, activation) - wanted).abs().max() <= 2e-6 * (1 + wanted.abs().max())


def test_gelu_is_far_finer_than_codes(ours: Kernels) -> None:
    product, rows = Int8Product(torch.ones(1, 1), None, ours), torch.linspace(-9, 9, 20_001)[:, None]
    found, given = product(rows, "gelu"), product(rows)
    assert (found - torch.nn.functional.gelu(given.double())).abs().max() <= 5e-6


def test_a_row_is_the_same_alone_and_among_others(ours: Kernels) -> None:
    product, rows = Int8Product(made(8, 130, 65), None, ours), made(9, 111, 65)
    together = product(rows, "gelu")
    assert torch.equal(together, torch.cat([product(row[None], "gelu") for row in rows]))
    wide = torch.zeros(111, 90)
    wide[:, 7:72] = rows
    assert torch.equal(together, product(wide[:, 7:72], "gelu"))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_range_of_rows_of_one_sign_has_zero_at_its_end(ours: Kernels, sign: float) -> None:
    weight, rows = made(14, 33, 150), sign * made(15, 9, 150).abs()
    rows[0], rows[1] = -0.0, sign * 1e-40
    wanted = exact(rows, weight, None, 63 if ours.functions.saturates else 127)
    found = Int8Product(weight, None, ours)(rows)
    assert ((found - wanted).abs().amax(1) <= 3e-7 * wanted.abs().amax(1) + 1e-28).all()


@pytest.mark.parametrize("at", [0, 70, 149])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_in_its_row_alone(ours: Kernels, bad: float, at: int) -> None:
    rows = made(10, 15, 150)
    rows[2, at] = bad
    found = Int8Product(made(11, 40, 150), None, ours)(rows)
    assert found.isfinite().all(1).tolist() == [row != 2 for row in range(15)]
    assert not found[2].isfinite().any()


@pytest.mark.parametrize("depth", [1, 5, 31, 33, 64])
def test_nothing_beside_the_rows_is_touched(ours: Kernels, depth: int) -> None:
    product, rows = Int8Product(made(12, 37, depth), None, ours), made(13, 13, depth)
    for side in ("start", "end"):
        inside = guarded(rows.numpy(), side)
        assert torch.equal(product(torch.from_numpy(inside)), product(rows))
