"""Gemma 3 without its eyes (arXiv 2503.19786), and EmbeddingGemma (arXiv 2509.20354), which looks both ways.

Gemma 2 with normalised queries and keys in place of the soft cap, and rotary positions that differ between the layers
that see the whole text and those that see a window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..errors import CheckpointError
from ..hf import Raw
from ..rope import Rope, read
from . import gemma2, llama

PREFIXES = llama.PREFIXES
RENAME = gemma2.RENAME
IGNORED = llama.IGNORED
HEADS = llama.HEADS
LM_HEAD = llama.LM_HEAD

_ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")


@dataclass(frozen=True)
class Config(gemma2.Config):
    """As Gemma 2's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`."""
        says = Raw(raw)
        says.must_be("attn_logit_softcapping", None)
        config = cls.normed_after({key: value for key, value in raw.items() if key not in _ROPE_KEYS})
        shape = config.shape
        pattern = says.size("sliding_window_pattern", 6)
        kinds = raw.get("layer_types") or gemma2.in_turns(len(shape.windows), pattern)
        config = config.windowed(kinds, _far(says, causal=shape.causal))
        ropes = _ropes(raw, shape.head_size, says.size("max_position_embeddings"))
        return config.shaped(query_key_norms=True, ropes=tuple(ropes[kind] for kind in kinds))


def _far(says: Raw, *, causal: bool) -> int:
    window = says.size("sliding_window", 4096)
    # Where the family itself looks both ways, its window is a width, not a radius.
    return window // 2 if says.raw.get("use_bidirectional_attention") else llama.distance(window, causal=causal)


def _ropes(raw: Mapping[str, Any], size: int, max_len: int) -> dict[str, Rope]:
    """Rotary positions by kind of layer; old files scale only those that see the whole text."""
    new = raw.get("rope_parameters") or {}
    if not set(new) <= {"full_attention", "sliding_attention"}:
        raise CheckpointError(
            f"config.json says rope_parameters={new!r}.", allowed="Those of full_attention and of sliding_attention."
        )
    full = {"rope_theta": raw.get("rope_theta") or 1_000_000.0, **(new.get("full_attention") or {})}
    near = {"rope_theta": raw.get("rope_local_base_freq") or llama.BASE, **(new.get("sliding_attention") or {})}
    says = {"full_attention": {**full, **(raw.get("rope_scaling") or {})}, "sliding_attention": near}
    return {kind: read(values, size=size, max_len=max_len) for kind, values in says.items()}


Model = llama.Model
