"""Our own CPU kernels (the package `cenote-kernels`) on tensors; `device.plan` says whether and which.

They take float32 on the CPU, and compute in the thread that calls them. Layers that can use them have an attribute
`kernels`, which stays None where PyTorch computes.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from .packed import Bounds

ACTIVATIONS: Final[dict[str | None, int]] = {
    name: number for number, name in enumerate((None, "gelu", "gelu_tanh", "relu", "silu", "tanh", "sigmoid"))
}
"""Our names of activations -> their numbers in C."""


class Kernels:
    """The kernels of one instruction set.

    Args:
        isa: A name of `cenote_kernels.isas()`.
    """

    def __init__(self, isa: str) -> None:
        import cenote_kernels

        self.functions = cenote_kernels.load(isa)

    def add_norm(self, rows: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        """The layer norm of `rows + added`, `[..., D]`."""
        size = rows.shape[-1]
        rows_TD, added_TD = _side_by_side(rows), None if added is None else _side_by_side(added)
        assert added_TD is None or added_TD.shape == rows_TD.shape
        out = torch.empty(rows.shape, dtype=torch.float32)
        self.functions.add_norm(
            out.data_ptr(),
            rows_TD.data_ptr(),
            0 if added_TD is None else added_TD.data_ptr(),
            weight.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            eps,
            rows_TD.shape[0],
            size,
            rows_TD.stride(0),
            0 if added_TD is None else added_TD.stride(0),
        )
        return out

    def attend(
        self,
        query_QHK: Tensor,
        key_THK: Tensor,
        value_THK: Tensor,
        bounds: Bounds,
        *,
        scale: float | None,
        causal: bool,
        window: int | None,
    ) -> Tensor:
        """Attention of each sequence over its own keys, `[Q, H * K]`; the last three are those of `attention.Rule`.

        Raises:
            MemoryError: There is none for the scores of a few rows.
        """
        query, key, value = (_heads_side_by_side(rows) for rows in (query_QHK, key_THK, value_THK))
        num_rows, heads, size = query.shape
        index_Q = bounds.query_index_Q
        out = torch.empty((num_rows, heads * size))
        failed = self.functions.attend(
            out.data_ptr(),
            *(rows.data_ptr() for rows in (query, key, value)),
            *(rows.stride(0) for rows in (query, key, value)),
            heads,
            key.shape[1],
            size,
            size**-0.5 if scale is None else scale,
            causal,
            -1 if window is None else window,
            0 if index_Q is None else index_Q.data_ptr(),
            bounds.table.ctypes.data,
            len(bounds.runs),
        )
        if failed:
            raise MemoryError(f"No memory for the attention of {num_rows} rows.")
        return out


class Panels:
    """A weight `[width, depth]` as `Kernels.linear` reads it: a copy, so the original can go.

    Args:
        kernels: Whose.
        weight: float32 on the CPU.
    """

    def __init__(self, kernels: Kernels, weight: Tensor) -> None:
        self.width, self.depth = weight.shape
        self._functions = kernels.functions
        rows = _side_by_side(weight)
        self._values = torch.empty(-(-self.width // 32) * 32 * self.depth)
        self._functions.pack(self._values.data_ptr(), rows.data_ptr(), self.width, self.depth, rows.stride(0))
        self._address = self._values.data_ptr()

    def times(self, rows: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        """`activation(rows @ weight.T + bias)`, `[..., depth]` to `[..., width]`."""
        rows_TK = _side_by_side(rows)
        assert rows_TK.shape[1] == self.depth
        out = torch.empty((*rows.shape[:-1], self.width))
        self._functions.linear(
            out.data_ptr(),
            rows_TK.data_ptr(),
            self._address,
            0 if bias is None else bias.data_ptr(),
            rows_TK.shape[0],
            self.depth,
            self.width,
            rows_TK.stride(0),
            self.width,
            ACTIVATIONS[activation],
        )
        return out


def use(module: nn.Module, kernels: Kernels) -> None:
    """Let every layer under `module` that can use kernels use these; before `prepare`."""
    for child in module.modules():
        if hasattr(child, "kernels"):
            setattr(child, "kernels", kernels)  # noqa: B010


def _heads_side_by_side(rows_THK: Tensor) -> Tensor:
    """Rows `[T, H, K]` whose heads lie side by side."""
    assert rows_THK.dtype == torch.float32
    _, heads, size = rows_THK.shape
    together = rows_THK.stride(2) == 1 and (heads == 1 or rows_THK.stride(1) == size)
    return rows_THK if together else rows_THK.contiguous()


def _side_by_side(rows: Tensor) -> Tensor:
    """Rows as `[T, D]` whose columns lie side by side."""
    assert rows.dtype == torch.float32
    rows_TD = rows if rows.dim() == 2 else rows.reshape(-1, rows.shape[-1])
    return rows_TD if rows_TD.stride(1) == 1 else rows_TD.contiguous()
