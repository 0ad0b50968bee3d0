"""Norms of rows."""

from __future__ import annotations

import torch
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

    def of_sum(self, rows: Tensor, added: Tensor) -> Tensor:
        """The norm of `rows + added`, `[..., D]`; `added`, whose rows lie side by side, becomes that sum."""
        if self.kernels is not None:
            return self.kernels.sum_norm(rows, added, self.weight, self.bias, self.eps, centred=True)
        return F.layer_norm(added.add_(rows), self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Rows divided by their root mean square, times `weight + offset`, in float32 (arXiv 1910.07467).

    Args:
        size: Columns.
        eps: Added to the mean square.
        offset: Added to the stored weight.
        by_pytorch: Whether PyTorch computes even where there are kernels: a model whose layers multiply the last bit of
            a norm must round as the reference does.
    """

    kernels: Kernels | None = None

    def __init__(self, size: int, eps: float, offset: float = 0.0, *, by_pytorch: bool = False) -> None:
        super().__init__()
        self._by_pytorch = by_pytorch
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.eps, self.offset = eps, offset
        self._factors: Tensor | None = None

    @property
    def factors(self) -> Tensor:
        """What rows are multiplied with, float32 `[size]`; after `prepare`."""
        assert self._factors is not None
        return self._factors

    def prepare(self) -> None:
        """Write the factors out once, after loading."""
        factors = self.weight.detach().float()
        self._factors = factors + self.offset if self.offset else factors

    def forward(self, rows: Tensor) -> Tensor:
        """`[..., size]` to the same."""
        if self.kernels is not None and not self._by_pytorch:
            return self.kernels.sum_norm(rows, None, self.factors, None, self.eps, centred=False)
        return F.rms_norm(rows.float(), self.weight.shape, self.factors, self.eps).to(rows.dtype)

    def of_sum(self, rows: Tensor, added: Tensor) -> Tensor:
        """As that of `LayerNorm`."""
        if self.kernels is not None and not self._by_pytorch:
            return self.kernels.sum_norm(rows, added, self.factors, None, self.eps, centred=False)
        return self.forward(added.add_(rows))
