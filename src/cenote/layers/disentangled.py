"""Disentangled attention: scores for what one token holds and where the other stands.

Source: He et al. 2020 (arXiv 2006.03654), section 3.1, and He et al. 2021 (arXiv 2111.09543) for the buckets.
"""

from __future__ import annotations

import torch
from torch import Tensor


def buckets(far: int, num_buckets: int, max_distance: int) -> Tensor:
    """Buckets of the distances (query minus key) from `-far` to `far`, int64 `[2 * far + 1]`, on the CPU.

    Distances up to half of `num_buckets` have a bucket each; farther ones share buckets that widen as the logarithm and
    of which the last ends at `max_distance`. Some distances lie on a border, so the order of the float32 operations is
    the published one.
    """
    distance = torch.arange(-far, far + 1, device="cpu")
    near = num_buckets // 2
    size = distance.abs().clamp(min=near - 1)
    span = torch.log(torch.tensor((max_distance - 1) / near, device="cpu"))
    wide = torch.ceil(torch.log(size / near) / span * (near - 1)) + near
    return torch.where(size <= near, distance, (wide * distance.sign()).long())


class Disentangled:
    """The scores of one layer, beside those of content with content, where PyTorch computes them.

    Args:
        row_of_distance: For the distances (query minus key) from `-far` to `far`, the row of the tables, ascending,
            int64 `[2 * far + 1]`. Whatever is farther shares the outermost rows.
        key_RHK: What a query meets in place of a key, scaled; None for no such scores.
        query_RHK: What a key meets in place of a query, scaled; None for no such scores. One of both is there.
    """

    def __init__(self, row_of_distance: Tensor, key_RHK: Tensor | None, query_RHK: Tensor | None) -> None:
        self._far = len(row_of_distance) // 2
        self._rows_on_host: list[int] = row_of_distance.tolist()
        met = key_RHK if key_RHK is not None else query_RHK
        self._rows = row_of_distance if met is None else row_of_distance.to(met.device)
        self._key_HKR = None if key_RHK is None else key_RHK.permute(1, 2, 0).contiguous()
        self._query_HRK = None if query_RHK is None else query_RHK.transpose(0, 1).contiguous()

    def between(self, query_nHqK: Tensor, key_nHkK: Tensor, query_nq: Tensor, key_k: Tensor, farthest: int) -> Tensor:
        """Scores `[n, H, q, k]`; see `attention.Content`."""
        shape = (*query_nHqK.shape[:3], key_nHkK.shape[2])
        # No distance of a short text reaches the outer rows, so they are left out of the products.
        reach = min(farthest, self._far)
        first, last = (self._rows_on_host[self._far + away] for away in (-reach, reach))
        away_nqk = (query_nq[..., None] - key_k).clamp_(-self._far, self._far) + self._far
        index = (self._rows[away_nqk] - first)[:, None].expand(shape)
        scores: Tensor | None = None
        if self._key_HKR is not None:
            scores = torch.matmul(query_nHqK, self._key_HKR[..., first : last + 1]).gather(3, index)
        if self._query_HRK is not None:
            met = torch.matmul(self._query_HRK[:, first : last + 1], key_nHkK.transpose(2, 3)).gather(2, index)
            scores = met if scores is None else scores.add_(met)
        assert scores is not None
        return scores
