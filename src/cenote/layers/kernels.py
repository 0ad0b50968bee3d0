"""Our own CPU kernels (the package `cenote-kernels`) on tensors; `device.plan` says whether and which.

They take float32 on the CPU, and compute in the thread that calls them. Layers that can use them have an attribute
`kernels`, which stays None where PyTorch computes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn

from .packed import Bounds

if TYPE_CHECKING:
    from .attention import Rule
    from .tables import Known

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

    def sum_norm(
        self, rows: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float, *, centred: bool
    ) -> Tensor:
        """The norm of `rows + added`, `[..., D]`; `added` becomes that sum.

        Args:
            centred: Whether the mean is subtracted (layer norm); else the root mean square alone divides.
        """
        rows_TD = _side_by_side(rows)
        assert added is None or (added.shape == rows.shape and added.is_contiguous())
        out = torch.empty(rows.shape, dtype=torch.float32)
        self.functions.sum_norm(
            out.data_ptr(),
            0 if added is None else added.data_ptr(),
            rows_TD.data_ptr(),
            weight.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            eps,
            *rows_TD.shape,
            rows_TD.stride(0),
            centred,
        )
        return out

    def turn(self, rows_THK: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """Turn the first pairs of each head, in place if the heads lie side by side.

        Args:
            cos, sin: Of the angles of each row, with as many columns as pairs are turned.
            weight: Factors `[K]` of the norm by the root mean square that comes before, or None for no norm.
            eps: Added to the mean square.
        """
        rows = _heads_side_by_side(rows_THK)
        num, heads, size = rows.shape
        assert cos.is_contiguous()
        assert sin.is_contiguous()
        assert cos.dtype == sin.dtype == torch.float32
        self.functions.turn(
            rows.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            eps,
            num,
            heads,
            size,
            cos.shape[-1],
            rows.stride(0),
        )
        return rows

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
        distances: DistanceTables | None = None,
    ) -> Tensor:
        """Attention of each sequence over its own keys, `[Q, H * K]`; the last four are those of `attention.Rule`.

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
            0 if distances is None else distances.address,
        )
        if failed:
            raise MemoryError(f"No memory for the attention of {num_rows} rows.")
        return out


class Panels:
    """A weight `[width, depth]` as `Kernels.linear` reads it: a copy, so the original can go.

    Args:
        kernels: Whose.
        weight: float32 on the CPU.

    Attributes:
        address: Where they begin.
    """

    def __init__(self, kernels: Kernels, weight: Tensor) -> None:
        self.width, self.depth = weight.shape
        self._functions = kernels.functions
        rows = _side_by_side(weight)
        self._values = torch.empty(-(-self.width // 32) * 32 * self.depth)
        self._functions.pack(self._values.data_ptr(), rows.data_ptr(), self.width, self.depth, rows.stride(0))
        self.address = self._values.data_ptr()

    def times(self, rows: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        """`activation(rows @ weight.T + bias)`, `[..., depth]` to `[..., width]`."""
        rows_TK = _side_by_side(rows)
        assert rows_TK.shape[1] == self.depth
        out = torch.empty((*rows.shape[:-1], self.width))
        self._functions.linear(
            out.data_ptr(),
            rows_TK.data_ptr(),
            self.address,
            0 if bias is None else bias.data_ptr(),
            rows_TK.shape[0],
            self.depth,
            self.width,
            rows_TK.stride(0),
            self.width,
            ACTIVATIONS[activation],
        )
        return out


class Weight(NamedTuple):
    """A packed weight, or that of a norm, and its bias."""

    values: Panels | Tensor
    bias: Tensor | None

    @property
    def addresses(self) -> tuple[int, int]:
        """Where they begin; 0 for no bias."""
        values = self.values
        first = values.address if isinstance(values, Panels) else values.data_ptr()
        return first, 0 if self.bias is None else self.bias.data_ptr()


class EncoderLayer:
    """A layer of a plain encoder in one call: attention, then a feed-forward, each added to its input and normalised.

    Args:
        kernels: Whose.
        weights: Those of the products that make queries, keys and values of all rows, queries of some rows and keys and
            values for them (two None where that is never asked), of those out of the attention, into the feed-forward
            and out of it, of the norm after the attention and of that after the feed-forward.
        eps: Of both norms.
        heads: Of the attention; all are as wide as the rows.
        activation: Of the feed-forward.
        turned_key: The weight of the keys transposed, or None. By it a sequence of which one row is read needs no keys.
    """

    def __init__(
        self,
        kernels: Kernels,
        weights: Sequence[Weight | None],
        *,
        eps: float,
        heads: int,
        activation: str | None,
        turned_key: Weight | None = None,
    ) -> None:
        self._weights = *weights, turned_key  # holds their memory
        up = weights[4]
        assert up is not None
        assert isinstance(up.values, Panels)
        size, inner = up.values.depth, up.values.width
        addresses = [address for weight in weights for address in (weight.addresses if weight else (0, 0))]
        turned = 0 if turned_key is None else turned_key.addresses[0]
        numbers = *addresses, size, heads, inner, ACTIVATIONS[activation], turned
        self._layer = (ctypes.c_int64 * len(numbers))(*numbers)
        self.address, self._function = ctypes.addressof(self._layer), kernels.functions.encoder_layer
        self._all = kernels.functions.encoder_layers
        self._eps, self._scale = eps, (size // heads) ** -0.5

    def __call__(
        self,
        hidden_TD: Tensor,
        chosen_QD: Tensor | None,
        bounds: Bounds,
        rule: Rule,
    ) -> Tensor:
        """`[T, D]` to the same, or for those rows of it that are chosen, `[Q, D]`.

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
            len(hidden_TD),
            0 if chosen_QD is None else given_QD.data_ptr(),
            len(given_QD),
            self._eps,
            self._scale if rule.scale is None else rule.scale,
            rule.causal,
            -1 if rule.window is None else rule.window,
            0 if bounds.query_index_Q is None else bounds.query_index_Q.data_ptr(),
            bounds.table.ctypes.data,
            len(bounds.runs),
            0 if rule.distances is None else rule.distances.address,
        )
        if failed:
            raise MemoryError(f"No memory for the layer of {len(hidden_TD)} rows.")
        return out_QD

    def begin(
        self, layers: Sequence[int], hidden_TD: Tensor, bounds: Bounds, rule: Rule, known: Known | None = None
    ) -> Tensor:
        """`[T, D]` to the same through several layers by their addresses, this one's the first; no distances.

        Args:
            known: What the first one's queries, keys and values are.
        """
        more = rule.causal, -1 if rule.window is None else rule.window, bounds.table.ctypes.data, len(bounds.runs)
        scale = self._scale if rule.scale is None else rule.scale
        return in_turn(self._all, layers, hidden_TD, known, self._eps, scale, *more)


def in_turn(
    function: Callable[..., int], layers: Sequence[int], hidden_TD: Tensor, known: Known | None, *more: float
) -> Tensor:
    """`[T, D]` through the layers at these addresses by a function of the kernels, which takes `more` after the rest.

    Raises:
        MemoryError: There is none for the rows inside the layers.
    """
    hidden_TD = hidden_TD.contiguous()
    out_TD, spare_TD = torch.empty_like(hidden_TD), torch.empty_like(hidden_TD)
    addresses = (ctypes.c_int64 * len(layers))(*layers)
    rows = out_TD.data_ptr(), spare_TD.data_ptr(), hidden_TD.data_ptr(), len(hidden_TD)
    first = 0 if known is None else known.address
    if function(ctypes.addressof(addresses), len(layers), *rows, first, *more):
        raise MemoryError(f"No memory for the layers of {len(hidden_TD)} rows.")
    return out_TD


class DistanceTables:
    """What tokens meet at each distance, as `Kernels.attend` reads it: copies, so the originals can go.

    Args:
        kernels: Whose.
        row_of_distance: For the distances (query minus key) from `-far` to `far`, the row of the tables, ascending,
            int64 `[2 * far + 1]`. Whatever is farther shares the outermost rows.
        key_RHK: What a query meets in place of a key, or None.
        query_RHK: What a key meets in place of a query, or None.
    """

    def __init__(
        self, kernels: Kernels, row_of_distance: Tensor, key_RHK: Tensor | None, query_RHK: Tensor | None
    ) -> None:
        import cenote_kernels

        # The kernels count from a query ahead to a key, and so do the rows.
        flipped = [None if table is None else table.detach().flip(0) for table in (key_RHK, query_RHK)]
        num, heads, size = next(table.shape for table in flipped if table is not None)
        step = -(-num // 32) * 32 * size
        self._rows = (num - 1 - row_of_distance.flip(0)).int()
        self._keys = None if flipped[0] is None else torch.empty((heads, step))
        self._queries = None if flipped[1] is None else flipped[1].transpose(0, 1).contiguous()
        if flipped[0] is not None and self._keys is not None:
            for head, panels in enumerate(self._keys):
                rows = flipped[0][:, head]
                kernels.functions.pack(panels.data_ptr(), rows.data_ptr(), num, size, rows.stride(0))
        addresses = (0 if table is None else table.data_ptr() for table in (self._keys, self._queries))
        far = len(row_of_distance) // 2
        self._record = cenote_kernels.Distances(*addresses, self._rows.data_ptr(), num, far, step)
        self.address = ctypes.addressof(self._record)


def spread(cores: int) -> AbstractContextManager[bool]:
    """Let kernels that this thread calls meanwhile work on further cores too, see `cenote_kernels.spread`."""
    import cenote_kernels

    return cenote_kernels.spread(cores)


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
