"""Products of 8-bit integers: weights with a scale per output channel, activations with a scale and a zero per token.

Weights are symmetric, activations are not: what a GELU gives lies nearly all on one side of zero. Both are rounded to
the nearest (LLM.int8(), arXiv 2208.07339, without its outlier columns). Sums are exact in int32, so a row does not
depend on its batch. Our own kernels multiply where there are any, else oneDNN through PyTorch, with the same integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor, nn

from .attention import PLAIN, Rule
from .kernels import ACTIVATIONS, Kernels, in_turn
from .packed import Bounds
from .tables import Known

_LARGEST_CODE = 255
_LARGEST = 127
_LARGEST_HALF = 63
"""Of weights where the CPU adds two 16-bit products without room for their sum (AVX2, AVX-512 without VNNI)."""
_LEAST = 1e-12  # scale of a column of zeros
_LEAST_RANGE = 1e-30  # of the values of a row; its inverse is finite
_MOST_DEPTH = (2**31 - 1) // (_LARGEST_CODE * _LARGEST)
_BLOCK = 48  # rows whose codes `csrc/kernels/int8.c` holds at once


class Int8Product(nn.Module):
    """`x @ weight.T + bias` on a weight in int8.

    Args:
        weight: float32 `[N, K]`.
        bias: float32 `[N]`, or None.
        kernels: Ours, or None for PyTorch's products.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, kernels: Kernels | None = None) -> None:
        super().__init__()
        self.kernels = kernels
        largest = _LARGEST_HALF if (saturates() if kernels is None else kernels.functions.saturates) else _LARGEST
        scale_N1 = weight.abs().amax(1, keepdim=True).div_(largest).clamp_(min=_LEAST)
        codes_NK = (weight / scale_N1).round_().to(torch.int8)
        self.num_out, self.depth = weight.shape
        # The kernels read whole panels. PyTorch's product reads a transposed weight as it lies.
        panel = 1 if kernels is None else kernels.functions.int8_columns
        wide = -self.num_out % panel
        self.codes = _kept(codes_NK.t().contiguous() if kernels is None else _panels(codes_NK, panel))
        self.sums_N = _kept(_widened(codes_NK.sum(1, dtype=torch.int32), wide))
        self.scale_N = _kept(_widened(scale_N1.squeeze(1), wide))
        self.bias_N = _kept(_widened(torch.zeros_like(scale_N1[:, 0]) if bias is None else bias.detach(), wide))

        each = (self.codes, self.sums_N, self.scale_N, self.bias_N)
        self._addresses = [values.data_ptr() for values in each]

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        """float32 `[..., K]` to `[..., N]`, and where kernels multiply, the activation of that."""
        rows_TK = x.reshape(-1, x.shape[-1])
        if self.kernels is not None:
            out_TN = self._by_kernels(self.kernels, rows_TK, activation)
        else:
            codes_TK, scale_T1, zero_T1 = _row_codes(rows_TK)
            # Both less 128, as the product takes signed integers.
            sums_TN = torch._int_mm((codes_TK - 128).to(torch.int8), self.codes)
            sums_TN -= (zero_T1 - 128).int() * self.sums_N
            out_TN = torch.addcmul(self.bias_N, sums_TN.float().mul_(scale_T1), self.scale_N)
        return out_TN.view(*x.shape[:-1], -1)

    def record(self, activation: str | None = None) -> list[int]:
        """What the kernels read as a `Weight`."""
        return [*self._addresses, self.depth, self.num_out, ACTIVATIONS[activation]]

    def _by_kernels(self, kernels: Kernels, rows_TK: Tensor, activation: str | None) -> Tensor:
        rows_TK = rows_TK if rows_TK.stride(1) == 1 else rows_TK.contiguous()
        out_TN = torch.empty(len(rows_TK), self.num_out)
        room = torch.empty(_BLOCK * (self.depth + 4) + 64, dtype=torch.uint8)
        kernels.functions.int8_linear(
            out_TN.data_ptr(),
            room.data_ptr(),
            rows_TK.data_ptr(),
            *self._addresses,
            len(rows_TK),
            self.depth,
            self.num_out,
            rows_TK.stride(0),
            ACTIVATIONS[activation],
        )
        return out_TN


class Int8Layer:
    """A layer of a plain encoder in one call: attention, then a feed-forward, each added to its input and normalised.

    Its results are those of the same products, attention and norms one after another, bit for bit.

    Args:
        kernels: Whose.
        products: Those that make queries, keys and values of all rows, queries of some rows and keys and values for
            them (two None where that is never asked), out of the attention, into the feed-forward and out of it.
        norms: After the attention and after the feed-forward, with one epsilon.
        heads: Of the attention; all are as wide as the rows.
        activation: Of the feed-forward.
    """

    def __init__(
        self,
        kernels: Kernels,
        products: Sequence[Int8Product | None],
        norms: Sequence[nn.LayerNorm],
        *,
        heads: int,
        activation: str | None,
    ) -> None:
        self._kept = products, norms
        *_, up, down = products
        assert up is not None
        assert down is not None
        chosen = [None] * 4 + [activation, None]
        numbers = [
            number
            for product, of_it in zip(products, chosen, strict=True)
            for number in ([0] * 7 if product is None else product.record(of_it))
        ]
        for norm in norms:
            numbers += [norm.weight.data_ptr(), norm.bias.data_ptr()]
        numbers += [up.depth, heads]
        self._layer = (ctypes.c_int64 * len(numbers))(*numbers)
        self.address, self._function = ctypes.addressof(self._layer), kernels.functions.int8_layer
        self._all = kernels.functions.int8_layers
        self._eps, self._scale = norms[0].eps, (up.depth // heads) ** -0.5

    def __call__(self, hidden_TD: Tensor, chosen_QD: Tensor | None, bounds: Bounds, rule: Rule) -> Tensor:
        """`[T, D]` to the same, or for those rows of it that are chosen, `[Q, D]`; where `why_not_attend` is None.

        Raises:
            MemoryError: There is none for the rows inside the layer.
        """
        hidden_TD = hidden_TD.contiguous()
        given_QD = hidden_TD if chosen_QD is None else chosen_QD.contiguous()
        out_QD = torch.empty_like(given_QD)
        failed = self._function(
            self.address,
            out_QD.data_ptr(),
            hidden_TD.data_ptr(),
            0 if chosen_QD is None else given_QD.data_ptr(),
            len(given_QD),
            self._eps,
            self._scale if rule.scale is None else rule.scale,
            bounds.spans.ctypes.data,
            len(bounds.spans),
        )
        if failed:
            raise MemoryError(f"No memory for the layer of {len(hidden_TD)} rows.")
        return out_QD

    def begin(
        self, layers: Sequence[int], hidden_TD: Tensor, bounds: Bounds, rule: Rule, known: Known | None = None
    ) -> Tensor:
        """`[T, D]` to the same through several layers by their addresses, this one's the first.

        Args:
            known: What the first one's queries, keys and values are.
        """
        more = self._scale if rule.scale is None else rule.scale, bounds.spans.ctypes.data, len(bounds.spans)
        return in_turn(self._all, layers, hidden_TD, known, self._eps, *more)


def attend(
    kernels: Kernels, query_QHK: Tensor, key_THK: Tensor, value_THK: Tensor, bounds: Bounds, rule: Rule
) -> Tensor:
    """Attention of each sequence over its own keys in int8, `[Q, H * K]`; keys and values have the same strides."""
    num, heads, size = query_QHK.shape
    spans_S4 = bounds.spans
    queries, keys = (int(spans_S4[:, column].max(initial=0)) for column in (1, 3))
    needed = ctypes.c_ssize_t()
    kernels.functions.int8_attention_room(ctypes.addressof(needed), queries, keys, heads, size)
    room = torch.empty(needed.value, dtype=torch.uint8)
    out_QD = torch.empty(num, heads * size)
    kernels.functions.int8_attention(
        out_QD.data_ptr(),
        room.data_ptr(),
        query_QHK.data_ptr(),
        key_THK.data_ptr(),
        value_THK.data_ptr(),
        spans_S4.ctypes.data,
        len(spans_S4),
        heads,
        size,
        query_QHK.stride(0),
        key_THK.stride(0),
        size**-0.5 if rule.scale is None else rule.scale,
    )
    return out_QD


def why_not_attend(rule: Rule, bounds: Bounds) -> str | None:
    """Why the kernels cannot attend in int8 by `rule`, or None where they can."""
    if rule is not PLAIN and replace(rule, scale=None) != PLAIN:
        return "scores have a mask, a bias or a cap"
    if bounds.key_rows_T is not None:
        return "sequences share keys"
    if max((run.key_len for run in bounds.runs), default=0) > _MOST_DEPTH:
        return f"sums over more than {_MOST_DEPTH} keys could exceed 32 bits"
    return None


def _row_codes(rows_TK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes from 0 to 255 as floats, and a scale and a zero `[T, 1]`: a value is about `scale * (code - zero)`."""
    least_T1 = rows_TK.amin(1, keepdim=True).clamp_(max=0)
    range_T1 = (rows_TK.amax(1, keepdim=True).clamp_(min=0) - least_T1).clamp_(min=_LEAST_RANGE)
    inverse_T1 = _LARGEST_CODE / range_T1
    zero_T1 = (-least_T1 * inverse_T1).round_()
    codes_TK = (rows_TK * inverse_T1).round_().add_(zero_T1).clamp_(0, _LARGEST_CODE)
    return codes_TK, range_T1 / _LARGEST_CODE, zero_T1


def _panels(codes_NK: Tensor, panel: int) -> Tensor:
    """As the kernels read them: of `P` columns, the 4 codes of one, then those of the next; `[N/P, K/4, P, 4]`."""
    num_out, depth = codes_NK.shape
    whole = nn.functional.pad(codes_NK, (0, -depth % 4, 0, -num_out % panel))
    return whole.view(-1, panel, (depth + 3) // 4, 4).transpose(1, 2).contiguous()


def _widened(values_N: Tensor, more: int) -> Tensor:
    return nn.functional.pad(values_N, (0, more))


def _kept(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)


def why_not_int8(weight: Tensor) -> str | None:
    """Why `weight` cannot be multiplied as int8, or None where it can."""
    if weight.device.type != "cpu":
        return f"int8 products are made on the CPU, and the weights are on {weight.device.type}"
    if weight.dtype != torch.float32:
        return f"int8 products take activations in float32, and the model runs in {weight.dtype}"
    if weight.shape[1] > _MOST_DEPTH:
        return f"sums of {weight.shape[1]} products could exceed 32 bits; {_MOST_DEPTH} cannot"
    if not hasattr(torch, "_int_mm"):
        return "this version of PyTorch has no int8 product"
    return None


@cache
def saturates() -> bool:
    """Whether PyTorch's products of the largest values come out too small on this CPU, as without VNNI they do."""
    ones = torch.full((32, 64), _LARGEST, dtype=torch.int8)
    found = torch._int_mm(ones, ones.t().contiguous()[:, :32].contiguous())
    return bool((found != 64 * _LARGEST**2).any())
