"""A layer that has nothing but plain parts is one call of our kernels, and gives what its parts give, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


class Separate(Block):
    """The same layer, which by its class is not known to be plain."""


@dataclass
class Counted:
    """`encoder_layer` of the kernels, and how often it was called."""

    function: Any
    calls: int = 0

    def __call__(self, *arguments: Any) -> int:
        self.calls += 1
        failed: int = self.function(*arguments)
        return failed


@pytest.fixture(params=cenote_kernels.isas() if cenote_kernels.why_not() is None else ())
def counted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Kernels, Counted]:
    """The kernels of an instruction set, whose whole layers are counted."""
    kernels = Kernels(request.param)
    counted = Counted(kernels.functions.encoder_layer)
    monkeypatch.setattr(kernels.functions, "encoder_layer", counted)
    return kernels, counted


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


def forward(made: Encoder, rule: Rule = PLAIN, wanted: tuple[Wanted, ...] = ()) -> Tensor:
    """Its last hidden states of a ragged batch."""
    batch = Batch.pack([Encoded(np.zeros(n, np.int32)) for n in LENGTHS], [ReadKey("embed")] * len(LENGTHS))
    hidden_TD = torch.randn((sum(LENGTHS), SHAPE.hidden_size), generator=torch.Generator().manual_seed(1))
    packed = Packed.of(batch, torch.device("cpu"), wanted)
    return made.forward(hidden_TD, packed, rule).last_QD


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [(), ("first",) * 5, ("last", "first", "all", "first", "all")])
@pytest.mark.parametrize("rule", [PLAIN, Rule(causal=True, window=3, scale=0.7)])
def test_plain_layers(counted: tuple[Kernels, Counted], rule: Rule, wanted: tuple[Wanted, ...]) -> None:
    kernels, calls = counted
    found = forward(encoder(kernels, Block), rule, wanted)
    assert calls.calls == SHAPE.num_layers
    assert torch.equal(found, forward(encoder(kernels, Separate), rule, wanted))
    assert calls.calls == SHAPE.num_layers


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [(), ("last", "first", "all", "first", "all")])
def test_plain_layers_with_distances(counted: tuple[Kernels, Counted], wanted: tuple[Wanted, ...]) -> None:
    kernels, calls = counted
    keys, queries = torch.randn((2, 5, 3, 8), generator=torch.Generator().manual_seed(2))
    rule = Rule(distances=DistanceTables(kernels, torch.tensor([0, 1, 1, 2, 3, 4, 4]), keys, queries))
    found = forward(encoder(kernels, Block), rule, wanted)
    assert calls.calls == SHAPE.num_layers
    assert torch.equal(found, forward(encoder(kernels, Separate), rule, wanted))
    assert not torch.equal(found, forward(encoder(kernels, Block), PLAIN, wanted))


@torch.inference_mode()
def test_other_layers_are_no_one_call(counted: tuple[Kernels, Counted]) -> None:
    kernels, calls = counted
    forward(encoder(kernels, Block), Rule(softcap=3.0))
    forward(encoder(kernels, Block, replace(SHAPE, gated=True)))
    forward(encoder(kernels, Block, int8=True))
    assert calls.calls == 0
