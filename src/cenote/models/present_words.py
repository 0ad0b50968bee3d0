"""No model at all: sparse rows are made of the ids of a text alone, and nothing is left to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

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
    """How many words have a weight."""

    vocab_size: int

    @property
    def hidden_size(self) -> int:
        return 1

    @property
    def position_limit(self) -> int | None:
        return None

    @property
    def nature(self) -> Nature:
        return Nature(prunes=False)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """The number of words."""
        return cls(Raw(raw).size("vocab_size"))


class Model(nn.Module):
    """Stands where others have a backbone."""

    def __init__(self, config: Config) -> None:
        super().__init__()

    def forward(self, packed: Packed) -> Hidden:
        """Token ids as they are, `[Q, 1]`."""
        return Hidden(packed.of_kept(packed.ids_T).float()[:, None], {})
