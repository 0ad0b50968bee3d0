"""Gemma 2 (arXiv 2408.00118): Gemma with norms after each half of a layer, soft-capped scores and a window in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..hf import Raw
from . import gemma, llama

PREFIXES = llama.PREFIXES
RENAME = (
    (r"^layers\.(\d+)\.post_attention_layernorm\.", r"decoder.blocks.\1.attention_post_norm."),
    (r"^layers\.(\d+)\.pre_feedforward_layernorm\.", r"decoder.blocks.\1.inner_norm."),
    (r"^layers\.(\d+)\.post_feedforward_layernorm\.", r"decoder.blocks.\1.inner_post_norm."),
    *llama.RENAME,
)
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD


@dataclass(frozen=True)
class Config(gemma.Config):
    """As Gemma's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; a window or a soft cap of null means none."""
        config = cls.normed_after({"final_logit_softcapping": 30.0, **raw})
        causal = config.nature.causal
        far = None
        if raw.get("sliding_window", 4096) is not None:
            far = llama.distance(Raw(raw).size("sliding_window", 4096), causal=causal)
        kinds = raw.get("layer_types") or in_turns(len(config.shape.windows), 2)
        capped = raw.get("attn_logit_softcapping", 50.0) is not None
        softcap = Raw(raw).number("attn_logit_softcapping", 50.0) if capped else None
        return config.windowed(kinds, far).shaped(softcap=softcap)

    @classmethod
    def normed_after(cls, raw: Mapping[str, Any]) -> Self:
        """What Gemma 2 and 3 share."""
        config = cls.scaled({**raw, "hidden_act": raw.get("hidden_activation")}, {"num_key_value_heads": 4})
        return config.shaped(post_norms=True, scale=Raw(raw).size("query_pre_attn_scalar", 256) ** -0.5)


def in_turns(num_layers: int, every: int) -> list[str]:
    """Kinds of layers of which each `every`-th sees the whole text."""
    return ["full_attention" if (number + 1) % every == 0 else "sliding_attention" for number in range(num_layers)]


Model = llama.Model
