"""Phi-3 and Phi-4-mini (arXiv 2404.14219): Llama stored in fused layers, which may leave part of a head unturned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..hf import Raw
from ..rope import Rope, read, stated
from . import llama

PREFIXES = llama.PREFIXES
RENAME = (
    (r"^layers\.(\d+)\.self_attn\.qkv_proj\.", r"decoder.blocks.\1.qkv."),
    (r"^layers\.(\d+)\.mlp\.gate_up_proj\.", r"decoder.blocks.\1.gate_up."),
    *llama.RENAME,
)
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD

# Names that old files give to the one scaling of the family.
_LONGROPE = ("su", "yarn", "longrope")


@dataclass(frozen=True)
class Config(llama.Config):
    """As Llama's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; there is a window only where it names one."""
        config = cls.plain(raw, {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096})
        if raw.get("sliding_window") is None:
            return config
        far = llama.distance(Raw(raw).size("sliding_window"), causal=config.nature.causal)
        return config.shaped(windows=(far,) * len(config.shape.windows))

    @classmethod
    def rope(cls, config: Raw, head_size: int, max_len: int) -> Rope:
        """Rotary positions of the first `partial_rotary_factor` of a head."""
        says = stated(config.raw, llama.BASE)
        if (says.get("rope_type") or says.get("type")) in _LONGROPE:
            says["rope_type"] = "longrope"
        part = Raw({**config.raw, **says}).number("partial_rotary_factor", 1.0)
        return read(says, size=int(head_size * part), max_len=max_len)


Model = llama.Model
