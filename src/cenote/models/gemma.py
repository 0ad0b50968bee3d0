"""Gemma (arXiv 2403.08295): Llama with scaled embeddings, a tanh GELU and norms whose stored weights lack a 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from . import llama

PREFIXES = llama.PREFIXES
RENAME = llama.RENAME
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD

_OVERFLOW = "the hidden states of the Gemma family overflow in float16"


@dataclass(frozen=True)
class Config(llama.Config):
    """As Llama's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; the oldest files say gelu and mean its tanh approximation."""
        activation = "gelu_pytorch_tanh" if raw.get("hidden_act") == "gelu" else raw.get("hidden_act")
        return cls.scaled({**raw, "hidden_act": activation}, {"num_key_value_heads": 16})

    @classmethod
    def scaled(cls, raw: Mapping[str, Any], defaults: Mapping[str, Any]) -> Self:
        """What the generations of Gemma share."""
        config = cls.plain(raw, {"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", **defaults})
        bias = bool(raw.get("attention_bias"))
        shaped = config.shaped(qkv_bias=bias, out_bias=bias, norm_offset=1.0)
        nature = replace(config.nature, why_not_float16=_OVERFLOW)
        return replace(shaped, nature=nature, embedding_scale=config.hidden_size**0.5)


Model = llama.Model
