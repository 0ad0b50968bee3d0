"""A bag of words: one value per word of a list, how often it stands in the text times its weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from ..hf import Raw
from ..layers.blocks import Hidden
from ..layers.packed import Packed
from ..steps import Nature, Stage

PREFIXES = ()
RENAME = ()
IGNORED = ()
HEADS: Mapping[str, tuple[Stage, ...]] = {}
STORES = False


@dataclass(frozen=True)
class Config:
    """Weights of the words by id, and whether a word counts as often as it stands in a text."""

    weights: tuple[float, ...] = field(repr=False)
    cumulative: bool

    @property
    def hidden_size(self) -> int:
        return len(self.weights)

    @property
    def vocab_size(self) -> int:
        return len(self.weights)

    @property
    def position_limit(self) -> int | None:
        return None

    @property
    def nature(self) -> Nature:
        return Nature(bag=True, prunes=False)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """The module's own config, with the weights by id."""
        config = Raw(raw)
        return cls(tuple(config.value("weights")), bool(config.value("cumulative_term_frequency", True)))


class Model(nn.Module):
    """The weights of the words."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to one row per text, `[S, V]` float32."""
        bounds_S1, ids_T = packed.bounds.query_S1.long(), packed.ids_T.long()
        num_seqs = len(bounds_S1) - 1
        seqs_S = torch.arange(num_seqs, device=ids_T.device)
        seqs_T = torch.repeat_interleave(seqs_S, bounds_S1.diff(), output_size=len(ids_T))
        weights_T = torch.tensor(self.config.weights, device=ids_T.device)[ids_T]
        rows_SV = torch.zeros(num_seqs, self.config.vocab_size, device=ids_T.device)
        rows_SV.index_put_((seqs_T, ids_T), weights_T, accumulate=self.config.cumulative)
        return Hidden(rows_SV, {})
