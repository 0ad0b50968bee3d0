"""RoBERTa (Liu et al. 2019, arXiv 1907.11692), XLM-RoBERTa (arXiv 1911.02116) and CamemBERT (arXiv 1911.03894).

BERT with positions that start after the padding id. A padding token inside a text keeps the padding position and does
not advance the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..layers.packed import Packed
from . import bert

PREFIXES = ("roberta.",)
RENAME = bert.RENAME
IGNORED = (*bert.IGNORED[:2], (r"^lm_head\.", "the masked-language-model head"))


class Config(bert.Config):
    """As BERT's; the first `pad_id + 1` rows of the position table belong to padding."""

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
