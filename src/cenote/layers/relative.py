"""Biases by distance, in buckets that grow wider with it (Raffel et al. 2019, arXiv 1910.10683, section 2.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class RelativeBias(nn.Module):
    """What is added to a score for the distance of its key; `bias` is `[buckets, H]`.

    Args:
        num_heads: `H`.
        num_buckets: Of both sides together.
        far: Where the last bucket of a side begins at the latest; whatever is farther shares it.
    """

    def __init__(self, num_heads: int, num_buckets: int, far: int) -> None:
        super().__init__()
        self.num_buckets, self.far = num_buckets, far
        self.bias = nn.Parameter(torch.empty(num_buckets, num_heads), requires_grad=False)
        self._by_distance_HW: Tensor | None = None

    def prepare(self) -> None:
        """Write the bias out by distance, from `-far` to `far`, once, after loading."""
        rows = buckets(self.num_buckets, self.far).to(self.bias.device)
        self._by_distance_HW = self.bias[rows].t().contiguous()

    def between(self, query: Tensor, key_k: Tensor) -> Tensor:
        """Positions of queries `[..., q]` and of keys `[k]` to `[..., H, q, k]`."""
        assert self._by_distance_HW is not None
        away = (key_k - query[..., None]).clamp_(-self.far, self.far) + self.far
        return self._by_distance_HW.index_select(1, away.flatten()).view(-1, *away.shape).movedim(0, -3)


def buckets(num_buckets: int, far: int) -> Tensor:
    """Buckets of the distances (key minus query) from `-far` to `far`, int64 `[2 * far + 1]`, always on the CPU.

    Near distances have a bucket each; farther ones share buckets that widen as the logarithm. Later keys have buckets
    of their own. Some distances lie exactly on a border, so the order of the float32 operations is the published one.
    """
    distance = torch.arange(-far, far + 1, device="cpu")
    per_side = num_buckets // 2
    near = per_side // 2
    size = distance.abs()
    growth = torch.log(size.float() / near) / math.log(far / near) * (per_side - near)
    wide = (near + growth.clamp(min=0).long()).clamp(max=per_side - 1)
    return torch.where(size < near, size, wide) + per_side * (distance > 0)
