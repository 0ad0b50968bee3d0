"""Convolutions over the tokens of packed texts, as if zeros stood before and after each text."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .linear import Linear


class Kernel(nn.Module):
    """The weights of one convolution, computed as one product with the rows around each token."""

    def __init__(self, in_features: int, out_channels: int, size: int) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = nn.Parameter(
            torch.empty(out_channels, in_features, size), requires_grad=False
        )
        self.bias = nn.Parameter(torch.empty(out_channels), requires_grad=False)
        self.size = size
        self.product: Linear | None = None

    def prepare(self) -> None:
        """Lay the weights out for the product, once, after loading."""
        assert self.weight is not None
        num_out, num_in, size = self.weight.shape
        with torch.device("meta"):
            product = Linear(num_in * size, num_out)
        product.weight = nn.Parameter(self.weight.transpose(1, 2).reshape(num_out, -1), requires_grad=False)
        product.bias = self.bias
        product.prepare()
        self.product, self.weight = product, None

    def forward(self, around_QWD: Tensor) -> Tensor:
        """The rows around each token, the token in the middle, to `[Q, out_channels]`."""
        assert self.product is not None
        edge = (around_QWD.shape[1] - self.size) // 2
        out: Tensor = self.product(around_QWD[:, edge : edge + self.size].flatten(1))
        return out


def around(rows_QD: Tensor, index_Q: Tensor, lengths_Q: Tensor, reach: int) -> Tensor:
    """The rows at most `reach` away from each token, `[Q, 2 * reach + 1, D]`; zeros where the text has no such token.

    Args:
        index_Q: Place of each token in its text.
        lengths_Q: Tokens of its text.
    """
    near_W = torch.arange(-reach, reach + 1, device=rows_QD.device)
    index_QW = index_Q[:, None] + near_W
    inside_QW = (index_QW >= 0) & (index_QW < lengths_Q[:, None])
    place_QW = torch.arange(len(rows_QD), device=rows_QD.device)[:, None] + near_W
    return rows_QD[place_QW.where(inside_QW, 0)] * inside_QW[:, :, None]
