"""Rotary positions at real sizes and far positions, against the functions of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from cenote.layers.packed import Packed
from cenote.layers.rope import Angles, frequencies, rotate
from cenote.rope import read
from support.forwards import pack

CPU = torch.device("cpu")
MAX_LEN = 2048
LONG = 9000
TRAINED: dict[str, Any] = {"original_max_position_embeddings": 512}
SAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 8.0},
    "yarn": {"factor": 4.0, **TRAINED},
    "longrope": {
        "short_factor": [1 + number / 64 for number in range(64)],
        "long_factor": [1 + number / 8 for number in range(64)],
        **TRAINED,
    },
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **TRAINED},
}


def llama(kind: str, base: float) -> LlamaConfig:
    says = {"rope_type": kind, "rope_theta": base, **SAYS[kind]}
    sizes: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": MAX_LEN}
    return LlamaConfig(**sizes, rope_parameters=says)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1_000_000.0])
@pytest.mark.parametrize("kind", SAYS)
def test_frequencies_are_those_of_the_reference_to_the_bit(kind: str, base: float) -> None:
    config = llama(kind, base)
    rope = read({"rope_type": kind, "rope_theta": base, **SAYS[kind]}, size=128, max_len=MAX_LEN)
    compute: Any = ROPE_INIT_FUNCTIONS.get(kind, LlamaRotaryEmbedding.compute_default_rope_parameters)
    theirs, gain = compute(config)
    assert torch.equal(frequencies(rope), theirs)
    assert getattr(rope, "gain", 1.0) == pytest.approx(gain, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", SAYS)
def test_far_angles_are_those_of_the_reference_in_every_precision(kind: str, dtype: torch.dtype) -> None:
    rope = read({"rope_type": kind, "rope_theta": 10_000.0, **SAYS[kind]}, size=128, max_len=MAX_LEN)
    packed = Packed.of(pack([([1] * 400, None), ([1] * LONG, None)]), CPU)
    turn = Angles(rope, CPU).turn(packed, dtype)
    for start, length in ((0, 400), (400, LONG)):
        theirs = LlamaRotaryEmbedding(llama(kind, 10_000.0))(torch.zeros(1, dtype=dtype), torch.arange(length)[None])
        for ours, reference in zip(turn, theirs, strict=True):
            row = ours[start : start + length, 0]
            assert row.dtype == dtype
            # The base of a long dynamic sequence is itself computed in float32, whose last bit counts 9000 times.
            limit = 4e-3 if kind == "dynamic" and length == LONG else 0.0
            assert (row.float() - reference[0, :, :64].float()).abs().max() <= limit


def test_dimensions_that_are_not_turned_stay() -> None:
    rope = read({"rope_theta": 10_000.0}, size=6, max_len=MAX_LEN)
    turn = Angles(rope, CPU).turn(Packed.of(pack([([1] * 5, None)]), CPU), torch.float32)
    rows = torch.randn(5, 3, 10, generator=torch.Generator().manual_seed(0))
    turned = rotate(rows, turn)
    assert torch.equal(turned[..., 6:], rows[..., 6:])
    assert torch.equal(turned[0], rows[0])
    assert not torch.allclose(turned[1:, :, :6], rows[1:, :, :6])
    norms = [(part[..., :3] ** 2 + part[..., 3:6] ** 2) for part in (turned, rows)]
    torch.testing.assert_close(norms[0], norms[1])
