"""ELECTRA (Clark et al. 2020, arXiv 2003.10555): BERT whose embeddings may be narrower than its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ..hf import Raw
from ..steps import MaskedLM, Stage
from . import bert

PREFIXES = ("electra.",)
RENAME = ((r"^embeddings_project\.", "project."), *bert.RENAME)
IGNORED = (
    (r"^embeddings\.position_ids$", "a counter, not a weight"),
    (r"^discriminator_predictions\.", "the pre-training head that tells replaced tokens"),
    (r"^generator_(predictions|lm_head)\.", "the masked-language-model head, where nobody reads it"),
)
HEADS = {
    "sequence": (Stage("classifier.dense", "gelu"), Stage("classifier.out_proj")),
    "token": (Stage("classifier"),),
}


@dataclass(frozen=True)
class Config(bert.Config):
    """As BERT's, with `embedding_size` of its own; where it is not the hidden size, a projection is stored."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`."""
        return replace(super().from_hf(raw), embedding_size=Raw(raw).size("embedding_size", 128))

    @property
    def masked_lm(self) -> MaskedLM:
        """The generator's; its activation is always GELU."""
        return replace(
            super().masked_lm,
            dense="generator_predictions.dense",
            norm="generator_predictions.LayerNorm",
            decoder="generator_lm_head",
            bias="generator_lm_head.bias",
            activation="gelu",
        )


Model = bert.Model
