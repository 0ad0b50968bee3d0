"""A layer that has nothing but plain parts is one call of our kernels, and gives what its parts give, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cenote_kernels
from cenote.layers.attention import PLAIN, Rule
from cenote.layers.blocks import Block, Encoder, EncoderShape
from cenote.layers.kernels import DistanceTables, Kernels, use
from cenote.layers.linear import prepare, quantize
from cenote.layers.packed import Packed, Wanted
from cenote.types import Batch, Encoded, ReadKey

pytestmark = pytest.mark.skipif(cenote_kernels.why_not() is not None, reason=f"kernels: {cenote_kernels.why_not()}")
SHAPE = EncoderShape(
    hidden_size=24, num_layers=3, num_heads=3, inner_size=50, activation="gelu", norm_eps=1e-5, attention_bias=False
)
LENGTHS = (5, 1, 12, 30, 2)

WIDE = replace(SHAPE, hidden_size=96, num_heads=3, attention_bias=True)
"""With heads so wide that keys need not be made where one row is read."""


class Separate(Block):
    """The same layer, which by its class is not known to be plain."""


@pytest.fixture(params=cenote_kernels.isas() if cenote_kernels.why_not() is None else ())
def counted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Kernels, list[int]]:
    """The kernels of an instruction set, and how many whole layers each call of them computes."""
    kernels, calls = Kernels(request.param), list[int]()
    for name in ("encoder_layer", "encoder_layers", "int8_layer", "int8_layers"):
        monkeypatch.setattr(kernels.functions, name, counting(getattr(kernels.functions, name), name, calls))
    return kernels, calls


def counting(function: Any, name: str, calls: list[int]) -> Any:
    """A function of the kernels that notes of how many layers it is."""

    def call(*arguments: Any) -> int:
        calls.append(arguments[1] if name.endswith("s") else 1)
        failed: int = function(*arguments)
        return failed

    return call


def encoder(kernels: Kernels, kind: type[Block], shape: EncoderShape = SHAPE, *, int8: bool = False) -> Encoder:
    """A random one, always the same."""
    made = Encoder(shape, kind)
    torch.manual_seed(0)
    for parameter in made.parameters():
        parameter.normal_(std=0.3)
    if int8:
        quantize(made)
    use(made, kernels)
    prepare(made)
    return made


def forward(made: Encoder, rule: Rule = PLAIN, wanted: tuple[Wanted, ...] = (), layers: tuple[int, ...] = ()) -> Tensor:
    """Its last hidden states of a ragged batch."""
    batch = Batch.pack([Encoded(np.zeros(n, np.int32)) for n in LENGTHS], [ReadKey("embed")] * len(LENGTHS))
    size = made.blocks[-1].get_submodule("norm").get_parameter("weight").shape[0]
    hidden_TD = torch.randn((sum(LENGTHS), size), generator=torch.Generator().manual_seed(1))
    packed = Packed.of(batch, torch.device("cpu"), wanted, layers)
    return made.forward(hidden_TD, packed, rule).last_QD


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [(), ("first",) * 5, ("last", "first", "all", "first", "all")])
@pytest.mark.parametrize("rule", [PLAIN, Rule(causal=True, window=3, scale=0.7)])
@pytest.mark.parametrize("int8", [False, True])
def test_plain_layers(counted: tuple[Kernels, list[int]], rule: Rule, wanted: tuple[Wanted, ...], int8: bool) -> None:
    kernels, calls = counted
    found = forward(encoder(kernels, Block, int8=int8), rule, wanted)
    in_one = [2, 1] if wanted else [3]
    assert calls == ([] if int8 and rule.causal else in_one)
    calls.clear()
    assert torch.equal(found, forward(encoder(kernels, Separate, int8=int8), rule, wanted))
    assert calls == []


@torch.inference_mode()
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("wanted", [(), ("first",) * 5])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_few_layers(
    counted: tuple[Kernels, list[int]], num_layers: int, wanted: tuple[Wanted, ...], int8: bool
) -> None:
    kernels, calls = counted
    shape = replace(SHAPE, num_layers=num_layers)
    found = forward(encoder(kernels, Block, shape, int8=int8), PLAIN, wanted)
    assert calls == ([1] * num_layers if wanted else [num_layers])
    calls.clear()
    assert torch.equal(found, forward(encoder(kernels, Separate, shape, int8=int8), PLAIN, wanted))


@torch.inference_mode()
def test_layers_that_are_read_are_one_call_each(counted: tuple[Kernels, list[int]]) -> None:
    kernels, calls = counted
    made = encoder(kernels, Block)
    found = forward(made, layers=(1, 3))
    assert calls == [1, 1, 1]
    assert torch.equal(found, forward(made))


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [(), ("last", "first", "all", "first", "all")])
def test_plain_layers_with_distances(counted: tuple[Kernels, list[int]], wanted: tuple[Wanted, ...]) -> None:
    kernels, calls = counted
    keys, queries = torch.randn((2, 5, 3, 8), generator=torch.Generator().manual_seed(2))
    rule = Rule(distances=DistanceTables(kernels, torch.tensor([0, 1, 1, 2, 3, 4, 4]), keys, queries))
    found = forward(encoder(kernels, Block), rule, wanted)
    assert calls == [1] * SHAPE.num_layers
    assert torch.equal(found, forward(encoder(kernels, Separate), rule, wanted))
    assert not torch.equal(found, forward(encoder(kernels, Block), PLAIN, wanted))


@torch.inference_mode()
def test_other_layers_are_no_one_call(counted: tuple[Kernels, list[int]]) -> None:
    kernels, calls = counted
    forward(encoder(kernels, Block), Rule(softcap=3.0))
    forward(encoder(kernels, Block, replace(SHAPE, gated=True)))
    assert calls == []


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [("first",) * 5, ("last", "first", "all", "first", "all")])
def test_one_row_without_keys(counted: tuple[Kernels, list[int]], wanted: tuple[Wanted, ...]) -> None:
    kernels, calls = counted
    found = forward(encoder(kernels, Block, WIDE), wanted=wanted)
    expected = forward(encoder(kernels, Separate, WIDE), wanted=wanted)
    assert calls == [2, 1]
    assert (found - expected).abs().max() <= 2e-6 * expected.abs().max()
    assert (found != expected).any()
    assert torch.equal(forward(encoder(kernels, Block, WIDE)), forward(encoder(kernels, Separate, WIDE)))
