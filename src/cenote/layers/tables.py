"""Tables of embeddings as the kernels read them, and what the first layer makes of their rows."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from ..types import IntArray
from .kernels import Kernels, Panels

MOST_KNOWN_BYTES: Final = 160 * 1024**2
"""Of the products of all rows of the tables; where they would take more, none are kept. A vocabulary of 30,522 and a
width of 384 take 136 MiB."""


class SummedTables:
    """The layer norm of a sum of rows of up to three tables, `[num, D]`, in one call.

    Args:
        kernels: Whose.
        tables: `[n, D]` each.
        weight, bias, eps: Of the norm.
    """

    def __init__(
        self, kernels: Kernels, tables: Sequence[Tensor], weight: Tensor, bias: Tensor | None, eps: float
    ) -> None:
        self._tables = [table.detach().contiguous() for table in tables]
        self._weight, self._bias, self._function = weight, bias, kernels.functions.embed_norm
        self._addresses = [(table.data_ptr(), len(table)) for table in self._tables]
        self._norm = weight.data_ptr(), 0 if bias is None else bias.data_ptr(), eps

    def __call__(self, ids: Sequence[Tensor | None], num: int, scales_T: Tensor | None = None) -> Tensor:
        """Rows of these ids of each table, `[num]`; None for its first each time.

        Args:
            scales_T: Gets what the norm multiplies each row with, before its weight.

        Raises:
            IndexError: A table has no such row.
        """
        held = [None if ids_T is None else ids_T.int().contiguous() for ids_T in ids]
        found = [
            number
            for (table, rows), ids_T in zip(self._addresses, held, strict=True)
            for number in (table, 0 if ids_T is None else ids_T.data_ptr(), rows)
        ]
        records, out = (ctypes.c_int64 * len(found))(*found), torch.empty((num, len(self._weight)))
        scales = 0 if scales_T is None else scales_T.data_ptr()
        if self._function(out.data_ptr(), ctypes.addressof(records), len(held), *self._norm, scales, *out.shape):
            sizes = ", ".join(str(rows) for _, rows in self._addresses)
            raise IndexError(f"A token, position or segment is beyond the tables of embeddings, of {sizes} rows.")
        return out


class Known:
    """The products of the rows of one batch, for the kernels to look up.

    Args:
        record: A `cenote_kernels.Known`.
        held: What it points to.

    Attributes:
        address: Of the record.
    """

    def __init__(self, record: ctypes.Structure, *held: Any) -> None:
        self._record, self._held = record, held
        self.address = ctypes.addressof(record)


class KnownProducts:
    """`weight @ norm(sum of rows) + bias`, where each row of each table is multiplied once, when it is first asked for.

    The norm takes the mean off the sum, divides by a number and multiplies by a weight, so its product is the sum of
    the products of rows less their means, divided, but for rounding. A sequence's rows do not depend on its batch.

    Args:
        kernels: Whose.
        tables: `[n, D]` each.
        norm: Of their sum.
        weight, bias: `[N, D]` and `[N]`, or None for no bias.
    """

    def __init__(
        self, kernels: Kernels, tables: Sequence[Tensor], norm: nn.LayerNorm, weight: Tensor, bias: Tensor | None
    ) -> None:
        panels = Panels(kernels, weight * norm.weight)
        self._tables = [_Products(table.detach(), panels) for table in tables]
        bias_N = torch.zeros(len(weight), dtype=torch.float64) if bias is None else bias.double()
        if norm.bias is not None:
            bias_N = bias_N + weight.double() @ norm.bias.double()
        self._bias_N = bias_N.float()

    def of(self, ids: Sequence[Tensor | None], scales_T: Tensor) -> Known:
        """Those of the rows of these ids of each table, which has them; None for its first each time.

        Args:
            scales_T: From `SummedTables`.
        """
        import cenote_kernels

        places = [
            None if ids_T is None else table.places(ids_T.numpy())
            for table, ids_T in zip(self._tables, ids, strict=True)
        ]
        numbers = [
            number
            for table, at in zip(self._tables, places, strict=True)
            for number in (table.address, 0 if at is None else at.ctypes.data, len(table))
        ]
        tables = (ctypes.c_int64 * len(numbers))(*numbers)
        addresses = ctypes.addressof(tables), len(places), scales_T.data_ptr(), self._bias_N.data_ptr()
        return Known(cenote_kernels.Known(*addresses), self, tables, places, scales_T)


class _Products:
    """Products of the rows of a table, in the order in which they were asked for, so that common ones lie together.

    Attributes:
        address: Where they begin; first that of row 0.
    """

    def __init__(self, table: Tensor, panels: Panels) -> None:
        self._table, self._panels = table, panels
        # Memory that nothing is written to is not taken.
        self._made = np.empty((len(table), panels.width), np.float32)
        self._places = np.full(len(table), -1, np.int32)
        self._num = 0
        self._lock = threading.Lock()
        self.address = self._made.ctypes.data
        self._make(np.zeros(1, np.int32))

    def __len__(self) -> int:
        return len(self._table)

    def places(self, ids: IntArray) -> IntArray:
        """Where the products of these rows are, int32."""
        found: IntArray = self._places[ids]
        if (found < 0).any():
            with self._lock:
                self._make(np.unique(ids[self._places[ids] < 0]))
            found = self._places[ids]
        return found

    def _make(self, ids: IntArray) -> None:
        rows = self._table[torch.from_numpy(ids).long()].double()
        end = self._num + len(ids)
        centred = (rows - rows.mean(1, keepdim=True)).float()
        self._made[self._num : end] = self._panels.times(centred, None, None).numpy()
        # A thread that finds a place also finds what is there.
        self._places[ids] = np.arange(self._num, end, dtype=np.int32)
        self._num = end
