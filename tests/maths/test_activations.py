"""Names of activations mean what they mean in the reference."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from cenote.hf import ACTIVATIONS
from cenote.layers import linear
from cenote.layers.linear import Linear


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_of_a_config_is_that_of_the_reference(name: str) -> None:
    x = torch.linspace(-8, 8, 4001)
    ours = linear.ACTIVATIONS[ACTIVATIONS[name]](x)
    torch.testing.assert_close(ours, ACT2FN[name](x), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("activation", [None, *linear.ACTIVATIONS])
def test_a_prepared_linear_computes_the_same(activation: str | None) -> None:
    source = torch.Generator().manual_seed(0)
    layer = Linear(60, 84, activation=activation)
    assert layer.weight is not None
    assert layer.bias is not None
    layer.weight.data.copy_(torch.randn(84, 60, generator=source) / 4)
    layer.bias.data.copy_(torch.randn(84, generator=source))
    for rows in (1, 2, 37):
        x = torch.randn(rows, 60, generator=source)
        before = Linear.forward(layer, x)
        prepared = Linear(60, 84, activation=activation)
        prepared.weight, prepared.bias = layer.weight, layer.bias
        prepared.prepare()
        torch.testing.assert_close(prepared(x), before, rtol=1e-5, atol=1e-5)
