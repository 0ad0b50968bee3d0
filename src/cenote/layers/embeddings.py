"""Input embeddings of BERT's family: words, positions and segments, summed and normalised."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .adapters import AdapterSizes, TableAdapters
from .kernels import Kernels
from .norms import LayerNorm
from .packed import Packed
from .tables import MOST_KNOWN_BYTES, Known, KnownProducts, SummedTables


class Table(nn.Module):
    """Rows to look up: `weight` is `[num_rows, size]`.

    Args:
        adapters: Of the updates that can be chosen from, or None.
    """

    def __init__(self, num_rows: int, size: int, adapters: AdapterSizes | None = None) -> None:
        super().__init__()
        self.adapters = None if adapters is None else TableAdapters(adapters, num_rows, size)
        self.weight = nn.Parameter(torch.empty(num_rows, size), requires_grad=False)

    def forward(self, rows_T: Tensor, chosen: Tensor | None = None) -> Tensor:
        """`[T]` to `[T, size]`; `chosen` is what `AdapterSizes.chosen` gives, or None for no adapters."""
        found = F.embedding(rows_T, self.weight)
        if chosen is None:
            return found
        assert self.adapters is not None
        return found.add_(self.adapters(rows_T, chosen))


class Embeddings(nn.Module):
    """Sum of the tables, layer norm.

    Args:
        num_words: Rows of the table of words.
        num_positions, num_segments: Rows of the tables of positions and segments; 0 for none.
        size: Columns.
        norm_eps: Added to the variance.
        norm_bias: Whether the norm has a bias.
        adapters: Of the updates of each table that can be chosen from, or None.
    """

    kernels: Kernels | None = None

    def __init__(
        self,
        num_words: int,
        num_positions: int,
        num_segments: int,
        size: int,
        norm_eps: float,
        *,
        norm_bias: bool = True,
        adapters: AdapterSizes | None = None,
    ) -> None:
        super().__init__()
        self.words = Table(num_words, size, adapters)
        self.positions = Table(num_positions, size, adapters) if num_positions else None
        self.segments = Table(num_segments, size, adapters) if num_segments else None
        self.norm = LayerNorm(size, eps=norm_eps, bias=norm_bias)
        self._at_once: SummedTables | None = None
        self._products: KnownProducts | None = None

    def prepare(self) -> None:
        """Gather what the kernels need for all of it in one call, once, after loading."""
        if self.kernels is not None:
            norm = self.norm
            self._at_once = SummedTables(self.kernels, self._tables, norm.weight, norm.bias, norm.eps)

    def multiply(self, weight: Tensor, bias: Tensor | None) -> None:
        """Let `with_products` give products by this weight too, where kernels compute and there is room for them."""
        num_bytes = weight.element_size() * len(weight) * sum(map(len, self._tables))
        if self.kernels is not None and num_bytes <= MOST_KNOWN_BYTES:
            self._products = KnownProducts(self.kernels, self._tables, self.norm, weight.detach(), bias)

    @property
    def _tables(self) -> list[Tensor]:
        return [table.weight for table in (self.words, self.positions, self.segments) if table is not None]

    def _ids(self, packed: Packed, positions_T: Tensor) -> list[Tensor | None]:
        ids = (self.words, packed.ids_T), (self.positions, positions_T), (self.segments, packed.segments_T)
        return [ids_T for table, ids_T in ids if table is not None]

    def with_products(self, packed: Packed, positions_T: Tensor) -> tuple[Tensor, Known] | None:
        """What `forward` gives, and what `multiply` was given times that; None where it is not known."""
        if self._products is None or self._at_once is None or packed.embeds_TD is not None:
            return None
        ids, scales_T = self._ids(packed, positions_T), torch.empty(len(packed.ids_T))
        return self._at_once(ids, len(packed.ids_T), scales_T), self._products.of(ids, scales_T)

    def forward(self, packed: Packed, positions_T: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Token ids to `[T, size]`; `chosen` as in `Table`."""
        if self._at_once is not None and chosen is None and packed.embeds_TD is None:
            return self._at_once(self._ids(packed, positions_T), len(packed.ids_T))
        words = packed.embeds_TD if packed.embeds_TD is not None else self.words(packed.ids_T, chosen)
        summed = words if self.positions is None else words + self.positions(positions_T, chosen)
        if self.segments is not None and chosen is not None:
            segments_T = torch.zeros_like(packed.ids_T) if packed.segments_T is None else packed.segments_T
            summed = summed + self.segments(segments_T, chosen)
        elif self.segments is not None:
            first_D = self.segments.weight[0]
            summed = summed + (first_D if packed.segments_T is None else self.segments(packed.segments_T))
        return self.norm.forward(summed)
