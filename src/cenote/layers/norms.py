"""Norms of rows."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .kernels import Kernels


class LayerNorm(nn.LayerNorm):
    """Layer norm (arXiv 1607.06450) of rows, or of a sum of two."""

    kernels: Kernels | None = None

    def forward(self, rows: Tensor, added: Tensor | None = None) -> Tensor:
        """`[..., D]` to the same: of `rows + added` where both are given, and then `rows` may be overwritten."""
        if self.kernels is not None:
            return self.kernels.add_norm(rows, added, self.weight, self.bias, self.eps)
        summed = rows if added is None else rows.add_(added)
        return F.layer_norm(summed, self.normalized_shape, self.weight, self.bias, self.eps)
