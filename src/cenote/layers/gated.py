"""Gated feed-forwards by our own kernels: both products and the gate in one pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .kernels import ACTIVATIONS, Kernels, Panels


class GatedPanels:
    """The weights of a gated feed-forward, interleaved so that gate and value of an output are computed side by side.

    Args:
        kernels: Whose.
        gate, up: float32 `[width, depth]` on the CPU: the weight whose product is activated, and the other.
        gate_bias, up_bias: `[width]`, or None.

    Attributes:
        address: Where they begin.
    """

    def __init__(
        self, kernels: Kernels, gate: Tensor, up: Tensor, gate_bias: Tensor | None = None, up_bias: Tensor | None = None
    ) -> None:
        lanes = kernels.functions.lanes
        self.width, self.depth = gate.shape
        self._panels = Panels(kernels, _interleaved(gate, up, lanes))
        self._bias = None
        if gate_bias is not None and up_bias is not None:
            self._bias = _interleaved(gate_bias[:, None], up_bias[:, None], lanes).squeeze(1).contiguous()
        self._functions = kernels.functions
        self.address = self._panels.address

    def times(self, rows: Tensor, activation: str | None) -> Tensor:
        """`activation(rows @ gate.T + gate_bias) * (rows @ up.T + up_bias)`, `[..., depth]` to `[..., width]`.

        Raises:
            MemoryError: There is none for the sums of some parts of a great depth.
        """
        rows_TK = rows.reshape(-1, self.depth)
        rows_TK = rows_TK if rows_TK.stride(1) == 1 else rows_TK.contiguous()
        assert rows_TK.dtype == torch.float32
        out = torch.empty((*rows.shape[:-1], self.width))
        failed = self._functions.gated_linear(
            out.data_ptr(),
            rows_TK.data_ptr(),
            self.address,
            0 if self._bias is None else self._bias.data_ptr(),
            rows_TK.shape[0],
            self.depth,
            self.width,
            rows_TK.stride(0),
            ACTIVATIONS[activation],
        )
        if failed:
            raise MemoryError(f"No memory for the feed-forward of {rows_TK.shape[0]} rows.")
        return out


def _interleaved(gate: Tensor, up: Tensor, lanes: int) -> Tensor:
    """So many rows of the one, then so many of the other, and so on; each filled with zeros to whole groups."""
    more = -gate.shape[0] % lanes
    whole = (nn.functional.pad(part, (0, 0, 0, more)) if more else part for part in (gate, up))
    return torch.stack([part.unflatten(0, (-1, lanes)) for part in whole], dim=1).flatten(0, 2)
