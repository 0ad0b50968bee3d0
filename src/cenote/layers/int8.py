"""Products of 8-bit integers: weights with a scale per output channel, activations with a scale per token.

Both are symmetric and rounded to the nearest (LLM.int8(), arXiv 2208.07339, without its outlier columns). Sums are
exact in int32, so a row does not depend on its batch. The product is oneDNN's, through PyTorch.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

_LARGEST = 127
_LARGEST_HALF = 63
"""Of weights where the CPU adds two 16-bit products without room for their sum (AVX2, AVX-512 without VNNI)."""
_LEAST = 1e-12  # scale of a row of zeros


class Int8Product(nn.Module):
    """`x @ weight.T + bias` on a weight in int8.

    Args:
        weight: float32 `[N, K]`.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        largest = _LARGEST_HALF if saturates() else _LARGEST
        scale_N1 = weight.abs().amax(1, keepdim=True).div_(largest).clamp_(min=_LEAST)
        # Transposed once, so that the product reads it as it lies.
        codes_KN = (weight / scale_N1).round_().to(torch.int8).t().contiguous()
        self.weight_KN = nn.Parameter(codes_KN, requires_grad=False)
        self.scale_N = nn.Parameter(scale_N1.squeeze(1), requires_grad=False)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """float32 `[..., K]` to `[..., N]`."""
        rows_TK = x.reshape(-1, x.shape[-1])
        scale_T1 = rows_TK.abs().amax(1, keepdim=True).div_(_LARGEST).clamp_(min=_LEAST)
        codes_TK = (rows_TK / scale_T1).round_().to(torch.int8)
        sums_TN = torch._int_mm(codes_TK, self.weight_KN).float().mul_(scale_T1)
        out_TN = sums_TN.mul_(self.scale_N) if bias is None else torch.addcmul(bias, sums_TN, self.scale_N)
        return out_TN.view(*x.shape[:-1], -1)


def why_not_int8(weight: Tensor) -> str | None:
    """Why `weight` cannot be multiplied as int8, or None where it can."""
    if weight.device.type != "cpu":
        return f"int8 products are made on the CPU, and the weights are on {weight.device.type}"
    if weight.dtype != torch.float32:
        return f"int8 products take activations in float32, and the model runs in {weight.dtype}"
    if not hasattr(torch, "_int_mm"):
        return "this version of PyTorch has no int8 product"
    return None


@cache
def saturates() -> bool:
    """Whether products of the largest values come out too small on this CPU, as without VNNI they do."""
    ones = torch.full((32, 64), _LARGEST, dtype=torch.int8)
    found = torch._int_mm(ones, ones.t().contiguous()[:, :32].contiguous())
    return bool((found != 64 * _LARGEST**2).any())
