"""A whole layer in int8 in one call: its parts one after another, bit for bit, whatever the sequences beside."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch

from cenote.layers import int8
from cenote.layers.attention import PLAIN, Rule
from cenote.layers.blocks import Block, EncoderShape
from cenote.layers.kernels import Kernels, use
from cenote.layers.linear import prepare, quantize
from cenote.layers.packed import Bounds, find_runs
from cenote_kernels import Kernels as Functions

SHAPE = EncoderShape(hidden_size=72, num_layers=1, num_heads=3, inner_size=130, activation="gelu", norm_eps=1e-5)
LENGTHS = [1, 40, 7, 1, 17, 17, 100, 3]


def made(kernels: Functions, shape: EncoderShape = SHAPE, seed: int = 1) -> Block:
    """A layer with random weights, on the kernels of one instruction set."""
    torch.manual_seed(seed)
    block = Block(shape)
    for name, parameter in block.named_parameters():
        spread = 1 if "norm" in name else parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, mean=1 if "norm.weight" in name else 0, std=spread)
    quantize(block)
    use(block, Kernels(kernels.isa))
    block.split()
    prepare(block)
    return block


def in_parts(block: Block, *inputs: object) -> torch.Tensor:
    """The same layer by one call for each of its parts."""
    with mock.patch.object(block, "_whole_int8", None):
        found: torch.Tensor = block(*inputs)
        return found


def bounds_of(lengths: list[int], queries: list[int] | None = None) -> Bounds:
    """Of sequences of these lengths."""
    own = np.array(lengths, np.int32)
    asked = own if queries is None else np.array(queries, np.int32)
    none = torch.zeros(0, dtype=torch.int32)
    return Bounds(none, none, None, find_runs(asked, own, own))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("biases", [True, False])
def test_it_is_its_parts_one_after_another(kernels: Functions, activation: str, biases: bool) -> None:
    block = made(
        kernels, replace(SHAPE, activation=activation, attention_bias=biases, up_bias=biases, down_bias=biases)
    )
    hidden, bounds = torch.randn(sum(LENGTHS), 72) * 2, bounds_of(LENGTHS)
    for rule in (PLAIN, Rule(scale=0.7)):
        with mock.patch.object(int8, "attend", side_effect=AssertionError("in parts")):
            found = block(hidden, bounds, rule, None)
        assert torch.equal(found, in_parts(block, hidden, bounds, rule, None))
        assert found.std() > 0.5
    assert not torch.equal(found, block(hidden, bounds, PLAIN, None))


def test_some_rows_are_those_of_all(kernels: Functions) -> None:
    block, hidden = made(kernels), torch.randn(sum(LENGTHS), 72)
    starts = np.cumsum([0, *LENGTHS[:-1]])
    rows = torch.tensor([*starts[:6], *range(starts[6], starts[6] + 100), starts[7]])
    asked = [1] * 6 + [100, 1]
    found = block(hidden, bounds_of(LENGTHS, asked), PLAIN, rows)
    assert torch.equal(found, block(hidden, bounds_of(LENGTHS), PLAIN, None)[rows])
    assert torch.equal(found, in_parts(block, hidden, bounds_of(LENGTHS, asked), PLAIN, rows))


def test_a_sequence_is_the_same_alone_and_among_others(kernels: Functions) -> None:
    block, hidden = made(kernels), torch.randn(sum(LENGTHS), 72)
    together = block(hidden, bounds_of(LENGTHS), PLAIN, None)
    alone = [block(rows, bounds_of([len(rows)]), PLAIN, None) for rows in hidden.split(LENGTHS)]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_its_sequence_alone(kernels: Functions, bad: float) -> None:
    block, hidden = made(kernels), torch.randn(60, 72)
    hidden[25, 3] = bad
    found = block(hidden, bounds_of([20, 20, 20]), PLAIN, None)
    assert found.isfinite().all(1).tolist() == [row // 20 != 1 for row in range(60)]


def test_other_layers_stay_in_parts(kernels: Functions) -> None:
    assert made(kernels)._whole_int8 is not None
    assert made(kernels, replace(SHAPE, gated=True))._whole_int8 is None
    block = made(kernels)
    hidden, bounds = torch.randn(5, 72), bounds_of([5])
    for rule in (Rule(causal=True), Rule(window=2)):
        assert torch.equal(block(hidden, bounds, rule, None), in_parts(block, hidden, bounds, rule, None))
