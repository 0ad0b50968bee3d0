"""jina-embeddings-v5 (Jina AI 2026): Qwen3, or the bidirectional Llama that is EuroBERT, with an adapter for each task.

The weights of one task's adapter are merged into the others when they are read (`checkpoint.with_base`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import llama, qwen3

PREFIXES = llama.PREFIXES
RENAME = llama.RENAME
IGNORED = llama.IGNORED
HEADS = llama.HEADS
Model = llama.Model


class Config(qwen3.Config):
    """As Qwen3's, or Llama's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Any:
        """Read `config.json`; what is no decoder is an encoder of the other kind."""
        if raw.get("is_decoder") is False:
            return llama.Config.from_hf({**raw, "is_causal": False})
        return qwen3.Config.from_hf(raw)
