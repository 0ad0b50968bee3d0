"""The gated product: sizes that fit no panel, depths in parts, activations, and rows that know no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cenote.layers.gated import GatedPanels
from cenote.layers.kernels import ACTIVATIONS, Kernels
from cenote.layers.linear import ACTIVATIONS as FUNCTIONS
from cenote_kernels import Kernels as Functions
from support.guarded import guarded

DEPTHS = (1, 7, 100, 1024, 1537, 2000)
WIDTHS = (1, 7, 8, 9, 16, 17, 33, 70)
ROWS = (0, 1, 3, 4, 6, 7, 14, 15, 33)


@pytest.fixture
def ours(kernels: Functions) -> Kernels:
    """The kernels of one instruction set, as layers take them."""
    return Kernels(kernels.isa)


def made(seed: int, *shape: int) -> torch.Tensor:
    """Random float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("width", WIDTHS)
def test_values(ours: Kernels, depth: int, width: int) -> None:
    gate, up, biases = made(1, width, depth), made(2, width, depth), (made(3, width), made(4, width))
    for own in ((None, None), biases):
        panels = GatedPanels(ours, gate, up, *own)
        for num in ROWS:
            rows = made(5, num, depth)
            gates, ups = (rows.double() @ part.double().T for part in (gate, up))
            wanted = (gates + (0 if own[0] is None else own[0])) * (ups + (0 if own[1] is None else own[1]))
            error = (1 + rows.abs() @ gate.abs().T) * (1 + rows.abs() @ up.abs().T)
            assert ((panels.times(rows, None) - wanted).abs() <= 1e-6 * error).all()


@pytest.mark.parametrize("depth", [40, 1600])
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
def test_activations_are_those_of_the_first(ours: Kernels, activation: str, depth: int) -> None:
    gate, up, rows = made(6, 37, depth) / depth**0.5, made(7, 37, depth), made(8, 30, depth)
    wanted = FUNCTIONS[activation](rows @ gate.T) * (rows @ up.T)
    assert (GatedPanels(ours, gate, up).times(rows, activation) - wanted).abs().max() <= 3e-6 * wanted.abs().max()


@pytest.mark.parametrize("depth", [3, 1024, 1600])
def test_a_row_is_the_same_alone_and_among_others(ours: Kernels, depth: int) -> None:
    panels, rows = GatedPanels(ours, made(9, 21, depth), made(10, 21, depth)), made(11, 131, depth)
    together = panels.times(rows, "silu")
    for count in (1, 5, 13):
        assert torch.equal(together, torch.cat([panels.times(part, "silu") for part in rows.split(count)]))


@pytest.mark.parametrize("depth", [5, 1600])
@pytest.mark.parametrize("width", [3, 16, 19])
def test_nothing_beside_the_rows_is_touched(ours: Kernels, depth: int, width: int) -> None:
    panels, rows = GatedPanels(ours, made(12, width, depth), made(13, width, depth)), made(14, 13, depth)
    wide = torch.full((13, width + 6), 7.0)
    for side in ("start", "end"):
        inside = torch.from_numpy(guarded(rows.numpy(), "start" if side == "start" else "end"))
        assert torch.equal(panels.times(inside, "gelu"), panels.times(rows, "gelu"))
    wide[:, 3 : 3 + width] = made(15, 13, width)
    assert torch.equal(
        GatedPanels(ours, made(16, 4, width), made(17, 4, width)).times(wide[:, 3 : 3 + width], None),
        GatedPanels(ours, made(16, 4, width), made(17, 4, width)).times(wide[:, 3 : 3 + width].contiguous(), None),
    )
    out = guarded(np.full((13, width), np.nan, np.float32))
    arguments = out.ctypes.data, rows.data_ptr(), panels.address, 0, 13, depth, width, depth, ACTIVATIONS["gelu"]
    assert not ours.functions.gated_linear(*arguments)
    assert torch.equal(torch.from_numpy(out), panels.times(rows, "gelu"))


def test_nan_stays_in_its_row(ours: Kernels) -> None:
    rows = made(18, 17, 40)
    rows[4, 39] = torch.nan
    found = GatedPanels(ours, made(19, 30, 40), made(20, 30, 40)).times(rows, "silu")
    assert found.isnan().all(1).nonzero().flatten().tolist() == [4]
    assert found[torch.arange(17) != 4].isfinite().all()
