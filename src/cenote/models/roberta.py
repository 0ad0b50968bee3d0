"""RoBERTa (Liu et al. 2019, arXiv 1907.11692), XLM-RoBERTa (arXiv 1911.02116) and CamemBERT (arXiv 1911.03894).

BERT with positions that start after the padding id. A padding token inside a text keeps the padding position and does
not advance the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..hf import Raw
from ..layers.packed import Packed
from ..steps import MaskedLM, Stage
from . import bert

PREFIXES = ("roberta.",)
RENAME = bert.RENAME
IGNORED = (*bert.IGNORED[:2], (r"^lm_head\.", "the masked-language-model head, where nobody reads it"))
HEADS = {
    "sequence": (Stage("classifier.dense", "tanh"), Stage("classifier.out_proj")),
    "token": (Stage("classifier"),),
}


@dataclass(frozen=True)
class Config(bert.Config):
    """As BERT's; the first `pad_id + 1` rows of the position table belong to padding."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; the padding token is number 1 where it names none."""
        config = super().from_hf({**raw, "pad_token_id": Raw(raw).integer("pad_token_id", 1)})
        if not 0 <= config.pad_id < config.num_positions - 1:
            raise CheckpointError(
                f"config.json says pad_token_id={config.pad_id} and max_position_embeddings={config.num_positions}.",
                allowed="Positions start after the padding token, so it is at least 0 and leaves room for a text.",
            )
        return config

    @property
    def masked_lm(self) -> MaskedLM:
        """Its activation is always GELU."""
        return replace(
            super().masked_lm,
            dense="lm_head.dense",
            norm="lm_head.layer_norm",
            decoder="lm_head.decoder",
            bias="lm_head.bias",
            activation="gelu",
        )

    @property
    def position_limit(self) -> int | None:
        return self.num_positions - self.pad_id - 1


class Model(bert.Model):
    """BERT with shifted positions."""

    def positions(self, packed: Packed) -> Tensor:
        """`pad_id` for padding tokens, else `pad_id` plus the count of other tokens so far in the sequence."""
        pad = self.config.pad_id
        real_T = (packed.ids_T != pad).to(torch.int32)
        count_T = torch.cumsum(real_T, 0, dtype=torch.int32)
        first_T = torch.arange(len(real_T), device=real_T.device) - packed.positions_T
        before_T = (count_T - real_T)[first_T]
        return (count_T - before_T) * real_T + pad
