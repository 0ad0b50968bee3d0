"""Static embeddings: the mean of the rows of a text's tokens, looked up in one table. model2vec's folders too.

model2vec (Tulkens and van Dongen 2024, https://github.com/MinishLab/model2vec) may keep fewer rows than there are
tokens, with a `mapping` from token to row, and a factor per token, `weights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import CheckpointError
from ..layers.blocks import Hidden
from ..layers.embeddings import Table
from ..layers.packed import Packed
from ..steps import Nature, Stage

PREFIXES = ()
RENAME = ((r"^embedding\.weight$", "words.weight"), (r"^embeddings$", "words.weight"))
IGNORED = ()
HEADS: Mapping[str, tuple[Stage, ...]] = {}
SIZED_BY_WEIGHTS = True

_PARTS = ("embeddings", "mapping", "weights")


@dataclass(frozen=True)
class Config:
    """Sizes; `normalizes` counts where there is no `modules.json`."""

    hidden_size: int
    vocab_size: int
    normalizes: bool

    @property
    def position_limit(self) -> int | None:
        return None

    @property
    def nature(self) -> Nature:
        return Nature(bag=True, prunes=False, normalizes=self.normalizes)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """The sizes of the table, which stand in the weights alone."""
        shapes: Mapping[str, tuple[int, ...]] = raw["shapes"]
        table = shapes.get("embedding.weight", shapes.get("embeddings", ()))
        if len(table) != 2:
            raise CheckpointError(
                f"The weights of a static embedding are {sorted(shapes)}.",
                allowed="A table called embedding.weight, or embeddings with mapping and weights.",
            )
        return cls(table[1], shapes.get("mapping", table)[0], bool(raw.get("normalize", False)))


class Model(nn.Module):
    """A table of words."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = Table(config.vocab_size, config.hidden_size)

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to one row per text, `[S, D]` float32; a text without tokens is zero."""
        starts_S, weight = packed.bounds.query_S1[:-1], self.words.weight
        ids_T = packed.ids_T
        if weight.dtype.itemsize < 4:
            # The mean is taken in float32, of the rows that are read alone.
            ids_T, weight = torch.arange(len(ids_T), device=ids_T.device, dtype=ids_T.dtype), self.words(ids_T).float()
        return Hidden(F.embedding_bag(ids_T, weight, starts_S, mode="mean"), {})


def gathered(tensors: Iterator[tuple[str, Tensor]], _: Config) -> Iterator[tuple[str, Tensor]]:
    """One row for each token: `embeddings[mapping] * weights`."""
    parts: dict[str, Tensor] = {}
    for name, tensor in tensors:
        if name in _PARTS:
            parts[name] = tensor
        else:
            yield name, tensor
    table = parts.get("embeddings")
    if table is None:
        return
    if "mapping" in parts:
        table = table[parts["mapping"].long()]
    if "weights" in parts:
        table = table.float() * parts["weights"].float()[:, None]
    yield "embeddings", table
