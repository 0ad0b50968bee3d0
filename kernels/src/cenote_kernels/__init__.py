"""CPU kernels in C, compiled for several instruction sets and loaded through ctypes, which releases the GIL.

Functions take addresses and sizes and check nothing: the caller answers for shapes, strides and alignment to 4 bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

__version__ = "0.3.0"

LIBRARY: Final = Path(__file__).with_name("kernels.so")

ISAS: Final = ("avx512_vnni", "avx512", "avx2")
"""Instruction sets that the library is compiled for, best first."""

_P, _I, _N, _F, _L = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_float, ctypes.c_int64

SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    # out, rows, added or 0, weight, bias or 0, eps, number of rows, their size, steps between rows and those added
    "add_norm": (_P, _P, _P, _P, _P, _F, _I, _I, _I, _I),
    # out, tables (address, that of int32 ids or 0, number of rows: three int64 each), their number, weight, bias or 0,
    # eps, what rows are multiplied with goes here or 0, number of rows, their size; not 0 where a table has no such row
    "embed_norm": (_P, _P, _I, _P, _P, _F, _P, _I, _I),
    # out, a `Known`, first row, number of rows, their size
    "known_rows": (_P, _P, _I, _I, _I),
    # out, what is added and becomes the sum or 0, rows, weight, bias or 0, eps, number of rows, their size, step
    # between rows, whether the mean is subtracted
    "sum_norm": (_P, _P, _P, _P, _P, _F, _I, _I, _I, _N),
    # rows, cosines, sines, weight of the norm of heads or 0, eps, number of rows, heads, their size, pairs, step
    "turn": (_P, _P, _P, _P, _F, _I, _I, _I, _I, _I),
    # panels, weight, width, depth, step between its rows
    "pack": (_P, _P, _I, _I, _I),
    # out, rows, panels, bias or 0, number of rows, depth, width, steps between rows and those of out, activation
    "linear": (_P, _P, _P, _P, _I, _I, _I, _I, _I, _N),
    # out, rows, panels, bias or 0, number of rows, depth, width of out, step between rows, activation; not 0 where
    # memory is missing
    "gated_linear": (_P, _P, _P, _P, _I, _I, _I, _I, _N),
    # out, queries, keys, values, steps between rows of each, heads, heads of keys, their size, scale, causal, window or
    # -1, positions of the query rows (int64) or 0, runs (six int32 each), their number, a `Distances` or 0; not 0 where
    # memory is missing
    "attend": (_P, _P, _P, _P, _I, _I, _I, _I, _I, _I, _F, _N, _I, _P, _P, _I, _P),
    # layer (21 int64, see `csrc/kernels/encoder_layer.c`), out, rows, their number, chosen rows or 0, their number,
    # eps, scale, causal, window or -1, positions of the query rows or 0, runs, their number, a `Distances` or 0; not 0
    # without memory
    "encoder_layer": (_P, _P, _P, _I, _P, _I, _F, _F, _N, _I, _P, _P, _I, _P),
    # addresses of layers, their number, out, room of its size, rows, their number, a `Known` or 0, eps, scale, causal,
    # window or -1, runs, their number; not 0 without memory
    "encoder_layers": (_P, _I, _P, _P, _P, _I, _P, _F, _F, _N, _I, _P, _I),
    # out, room for codes, rows, panels, sums of their columns, scales of those, bias, number of rows, depth, width,
    # step between rows, activation
    "int8_linear": (_P, _P, _P, _P, _P, _P, _P, _I, _I, _I, _I, _N),
    # where the bytes go, queries, keys, heads, their size
    "int8_attention_room": (_P, _I, _I, _I, _I),
    # out, room, queries, keys, values, spans, number of sequences, heads, their size, steps between queries and between
    # keys, scale
    "int8_attention": (_P, _P, _P, _P, _P, _P, _I, _I, _I, _I, _I, _F),
    # layer (see `csrc/kernels/int8_layer.c`), out, rows, chosen rows or 0, number of rows of out, eps, scale, spans,
    # number of sequences; not 0 where memory is missing
    "int8_layer": (_P, _P, _P, _P, _I, _F, _F, _P, _I),
    # addresses of layers, their number, out, room of its size, rows, their number, a `Known` or 0, eps, scale, spans,
    # number of sequences; not 0 where memory is missing
    "int8_layers": (_P, _I, _P, _P, _P, _I, _P, _F, _F, _P, _I),
}
"""Name of a function -> types of its arguments; the sources in `csrc` say what they are."""

_CAN_FAIL: Final = (
    "embed_norm",
    "attend",
    "gated_linear",
    "encoder_layer",
    "encoder_layers",
    "int8_layer",
    "int8_layers",
)


class Distances(ctypes.Structure):
    """What queries meet in place of keys, and keys in place of queries, by how far a key is ahead of a query.

    Attributes:
        keys: Address of the panels of each head, made by `pack` of all its rows, or 0.
        queries: Address of the rows `[heads, num, size]`, or 0.
        rows: Address of the row of each distance from `-far` to `far`, ascending, int32.
        num: Of rows.
        step: Floats from the panels of one head to those of the next.
    """

    _fields_ = (("keys", _P), ("queries", _P), ("rows", _P), ("num", _L), ("far", _L), ("step", _L))


class Known(ctypes.Structure):
    """What a product gives of the layer norm of a sum of rows of tables, to be looked up.

    Attributes:
        tables: Address of the tables, each three int64 as those of `embed_norm`: what the product gives of each row
            less its mean, times the norm's weight.
        num_tables: How many.
        scales: Address of what the norm multiplied each row with, from `embed_norm`.
        bias: Address of what the product gives of the norm's bias, its own added.
    """

    _fields_ = (("tables", _P), ("num_tables", _L), ("scales", _P), ("bias", _P))


class Kernels:
    """The functions of one instruction set, each an attribute by its name in `SIGNATURES`.

    Args:
        isa: One of those that `isas()` names.

    Attributes:
        lanes: How many floats a vector has.
        int8_columns: How many columns a panel of codes has.
        saturates: Whether codes of weights in int8 must stay within 63, since products are summed in 16 bits.
    """

    add_norm: Callable[..., None]
    embed_norm: Callable[..., int]
    known_rows: Callable[..., None]
    sum_norm: Callable[..., None]
    turn: Callable[..., None]
    gated_linear: Callable[..., int]
    pack: Callable[..., None]
    linear: Callable[..., None]
    attend: Callable[..., int]
    encoder_layer: Callable[..., int]
    encoder_layers: Callable[..., int]
    int8_linear: Callable[..., None]
    int8_attention: Callable[..., None]
    int8_attention_room: Callable[..., None]
    int8_layer: Callable[..., int]
    int8_layers: Callable[..., int]

    def __init__(self, isa: str) -> None:
        self.isa = isa
        self.lanes = 8 if isa == "avx2" else 16
        self.int8_columns = 2 * self.lanes
        self.saturates = not isa.endswith("vnni")
        for name, types in SIGNATURES.items():
            function = getattr(_library(), f"{name}_{isa}")
            function.argtypes, function.restype = types, _N if name in _CAN_FAIL else None
            setattr(self, name, function)


def why_not() -> str | None:
    """Why the kernels cannot be used on this machine, or None where they can."""
    if not LIBRARY.is_file():
        return f"{LIBRARY} is not there; the package was installed without being compiled"
    try:
        _library()
    except OSError as error:
        return f"{LIBRARY} cannot be loaded ({error})"
    return None if isas() else f"this CPU has none of {', '.join(ISAS)}"


def isas() -> tuple[str, ...]:
    """The instruction sets that this CPU has, best first.

    Raises:
        OSError: The library cannot be loaded; `why_not` says it in words.
    """
    return tuple(isa for isa in ISAS if getattr(_library(), f"has_{isa}")())


@cache
def load(isa: str) -> Kernels:
    """The kernels of an instruction set.

    Raises:
        ValueError: This CPU does not have it.
    """
    if isa not in isas():
        raise ValueError(f"isa={isa!r}; this CPU has {', '.join(isas()) or 'none of ours'}")
    return Kernels(isa)


@contextmanager
def spread(cores: int) -> Iterator[bool]:
    """Let kernels that this thread calls meanwhile work on further cores too, with the same results.

    Only one thread of the process does so at a time. The threads that help are made at first use and sleep soon after;
    a fork of the process has none of them.

    Args:
        cores: How many to work on, this thread's counted; those that the process may not use are left out.

    Yields:
        Whether it does: not with one core, not while another thread does, and not for a while after other processes
        kept the cores busy.
    """
    begun = bool(_library().spread_begin(cores))
    try:
        yield begun
    finally:
        if begun:
            _library().spread_end()


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))
