"""Adapters that rows choose: low-rank updates of a weight, several in one batch (Hu et al. 2021, arXiv 2106.09685).

All updates are computed at once and all but the chosen one multiplied by 0: they are narrow, so that no row is moved.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AdapterSizes(NamedTuple):
    """Sizes of the adapters of one model.

    Args:
        num: How many there are.
        rank: Of each update.
        scale: Factor of each update.
    """

    num: int
    rank: int
    scale: float

    def chosen(self, adapters_T: Tensor, dtype: torch.dtype) -> Tensor:
        """Adapter of each row, -1 for none, to `[T, num * rank]`: the factor in the columns of the row's adapter."""
        numbers = torch.arange(self.num, device=adapters_T.device)
        factors = (adapters_T[:, None] == numbers) * self.scale
        return factors.to(dtype).repeat_interleave(self.rank, dim=1)


class Adapters(nn.Module):
    """Updates of the weight of a linear layer: `a` is `[num, rank, in]`, `b` is `[num, out, rank]`."""

    def __init__(self, sizes: AdapterSizes, in_features: int, out_features: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.a = nn.Parameter(torch.empty(sizes.num, sizes.rank, in_features), requires_grad=False)
        self.b = nn.Parameter(torch.empty(sizes.num, out_features, sizes.rank), requires_grad=False)

    def only(self, rows: slice) -> Adapters:
        """Updates of some rows of the weight, on the same tensors."""
        with torch.device("meta"):
            part = Adapters(self.sizes, 0, 0)
        part.a, part.b = self.a, nn.Parameter(self.b[:, rows], requires_grad=False)
        return part

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Rows `[T, in]`, and what `AdapterSizes.chosen` gives for them, to `[T, out]`."""
        narrow = F.linear(x, self.a.flatten(0, 1)) * chosen
        return torch.matmul(narrow, self.b.transpose(1, 2).flatten(0, 1))


class TableAdapters(nn.Module):
    """Updates of a table of rows: `a` is `[num, rows, rank]`, `b` is `[num, rank, size]`."""

    def __init__(self, sizes: AdapterSizes, num_rows: int, size: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(sizes.num, num_rows, sizes.rank), requires_grad=False)
        self.b = nn.Parameter(torch.empty(sizes.num, sizes.rank, size), requires_grad=False)

    def forward(self, rows_T: Tensor, chosen: Tensor) -> Tensor:
        """Numbers of rows, and what `AdapterSizes.chosen` gives for them, to `[T, size]`."""
        narrow = self.a[:, rows_T].transpose(0, 1).flatten(1) * chosen
        return torch.matmul(narrow, self.b.flatten(0, 1))
