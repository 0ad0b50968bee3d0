"""Word embeddings: a row for each word, looked up in one table. What reads texts of them follows as modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import nn

from ..errors import CheckpointError
from ..layers.blocks import Hidden
from ..layers.embeddings import Table
from ..layers.packed import Packed
from ..steps import Nature, Stage

PREFIXES = ()
RENAME = ((r"^emb_layer\.", "words."),)
IGNORED = ()
HEADS: Mapping[str, tuple[Stage, ...]] = {}
SIZED_BY_WEIGHTS = True


@dataclass(frozen=True)
class Config:
    """Sizes."""

    hidden_size: int
    vocab_size: int

    @property
    def position_limit(self) -> int | None:
        return None

    @property
    def nature(self) -> Nature:
        return Nature(prunes=False)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """The sizes of the table, which stand in the weights alone."""
        shape = raw["shapes"].get("emb_layer.weight", ())
        if len(shape) != 2:
            raise CheckpointError(
                f"The weights of WordEmbeddings are {sorted(raw['shapes'])}.", allowed="emb_layer.weight."
            )
        return cls(shape[1], shape[0])


class Model(nn.Module):
    """A table of words."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = Table(config.vocab_size, config.hidden_size)

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to rows `[Q, D]`."""
        return Hidden(self.words(packed.of_kept(packed.ids_T)), {})
