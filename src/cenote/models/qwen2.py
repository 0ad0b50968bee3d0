"""Qwen2 and Qwen2.5 (arXiv 2407.10671): Llama with a bias on queries, keys and values; late layers may have windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ..hf import Raw
from ..steps import Reward, Stage
from . import llama

PREFIXES = llama.PREFIXES
RENAME = llama.RENAME
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD
_LAYERS = (Stage("score.0", activation="relu"), Stage("score.2"))
REWARDS = {
    "Qwen2ForRewardModel": Reward(_LAYERS, 1, raw=True),
    "Qwen2ForProcessRewardModel": Reward(_LAYERS, 2, step_tag_id=151_651),
}
"""Qwen2.5-Math-RM and Qwen2.5-Math-PRM, as their cards and code have them."""


@dataclass(frozen=True)
class Config(llama.Config):
    """As Llama's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`."""
        return cls.partly_windowed(raw).shaped(qkv_bias=True)

    @classmethod
    def partly_windowed(cls, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Self:
        """What the generations of Qwen share: a window from layer `max_window_layers` on, where it is switched on."""
        config = cls.plain(raw, {"num_key_value_heads": 32, **(defaults or {})})
        far = None
        if raw.get("use_sliding_window") and raw.get("sliding_window", 4096) is not None:
            far = llama.distance(Raw(raw).size("sliding_window", 4096), causal=config.nature.causal)
        first = Raw(raw).integer("max_window_layers", 28)
        kinds: Sequence[str] = raw.get("layer_types") or [
            "full_attention" if far is None or number < first else "sliding_attention"
            for number in range(len(config.shape.windows))
        ]
        return config.windowed(kinds, far)


Model = llama.Model
