"""Sums and means of rows are PyTorch's, bit for bit."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from cenote.layers.pooling import POOLS, Spans


@pytest.mark.parametrize("mode", ["mean", "mean_sqrt_len"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_added_as_pytorch_adds_them(mode: Literal["mean", "mean_sqrt_len"], dtype: torch.dtype) -> None:
    lengths, skips = [1, 40, 7, 300, 3, 16], [0, 5, 7, 1, 9, 0]  # two have nothing left
    bounds = np.cumsum([0, *lengths]).astype(np.int32)
    hidden_QD = torch.randn(sum(lengths), 24, generator=torch.Generator().manual_seed(0)).to(dtype)
    pooled_SD = POOLS[mode](hidden_QD, Spans.of(bounds, np.array(skips, np.int32), torch.device("cpu")))

    counts = [max(length - skip, 0) for length, skip in zip(lengths, skips, strict=True)]
    counted = [hidden_QD[end - count : end].float() for end, count in zip(bounds[1:].tolist(), counts, strict=True)]
    sums_SD = torch.segment_reduce(torch.cat(counted), "sum", lengths=torch.tensor(counts), initial=0)
    divisors_S1 = torch.tensor(counts).clamp(min=1).float()[:, None]
    assert torch.equal(pooled_SD, sums_SD / (divisors_S1 if mode == "mean" else divisors_S1.sqrt()))
