"""Attention with linear biases (Press et al. 2021, arXiv 2108.12409), seen from both sides.

Scores fall with distance, in each head by a slope of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor


def slopes(num_heads: int) -> list[float]:
    """The slope of each head: powers of two from 1 to `2 ** -8`, the first left out.

    Where the heads are no power of two, those beyond the next lower one take every second slope of the next higher one.
    """
    whole = 2 ** (num_heads.bit_length() - 1)
    found = [2.0 ** (-8 * number / whole) for number in range(1, whole + 1)]
    between = [2.0 ** (-8 * number / (2 * whole)) for number in range(1, 2 * whole, 2)]
    return [*found, *between[: num_heads - whole]]


class Alibi:
    """The bias of one model.

    Args:
        num_heads: `H`.
        device: Where it is used.
    """

    def __init__(self, num_heads: int, device: torch.device) -> None:
        self._slopes_H11 = torch.tensor(slopes(num_heads), device=device)[:, None, None]

    def between(self, query: Tensor, key_k: Tensor) -> Tensor:
        """Positions of queries `[..., q]` and of keys `[k]` to `[..., H, q, k]`; see `attention.Bias`."""
        away = (key_k - query[..., None]).abs_().neg_().unsqueeze(-3)
        return away * self._slopes_H11
