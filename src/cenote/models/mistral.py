"""Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama without biases, whose layers may all see a window only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..hf import Raw
from . import llama

PREFIXES = llama.PREFIXES
RENAME = llama.RENAME
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD


@dataclass(frozen=True)
class Config(llama.Config):
    """As Llama's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; no `sliding_window` at all means 4096, and null means none."""
        config = cls.plain(raw, {"num_key_value_heads": 8})
        if raw.get("sliding_window", 4096) is None:
            return config
        far = llama.distance(Raw(raw).size("sliding_window", 4096), causal=config.nature.causal)
        return config.shaped(windows=(far,) * len(config.shape.windows))


Model = llama.Model
