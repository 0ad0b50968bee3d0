"""Qwen3 (arXiv 2505.09388): Qwen2 with normalised queries and keys, and heads of a size of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from . import llama, qwen2

PREFIXES = llama.PREFIXES
RENAME = llama.RENAME
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD


@dataclass(frozen=True)
class Config(qwen2.Config):
    """As Qwen2's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`."""
        bias = bool(raw.get("attention_bias"))
        return cls.partly_windowed(raw, {"head_dim": 128}).shaped(qkv_bias=bias, out_bias=bias, query_key_norms=True)


Model = llama.Model
