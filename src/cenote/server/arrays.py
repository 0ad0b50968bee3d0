"""How arrays go over the wire: JSON numbers, base64 or raw bytes, in the precision and byte order asked for."""

from __future__ import annotations

import binascii
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..types import FloatArray

EncodingFormat: TypeAlias = Literal["float", "base64", "bytes", "bytes_only"]
EmbedDtype: TypeAlias = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness: TypeAlias = Literal["native", "big", "little"]

# Formats that numpy does not have, by torch's name; torch is imported only when one of them is asked for.
_TORCH_NAMES = {"bfloat16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}


def numbers(rows: FloatArray | list[FloatArray]) -> list[FloatArray]:
    """Rows ready for orjson's numpy support: contiguous float32, one array of any shape per input."""
    return list(_each(rows, np.ascontiguousarray))


def base64(rows: FloatArray | list[FloatArray], dtype: EmbedDtype, endianness: Endianness) -> list[str]:
    """One base64 string of the raw array per input; `dtype` and `endianness` as in `raw`."""
    return [
        binascii.b2a_base64(row.data, newline=False).decode("ascii")
        for row in _each(rows, lambda part: raw(part, dtype, endianness))
    ]


def packed(rows: NDArray[Any]) -> list[str]:
    """One base64 string per row of a matrix, of its numbers as they are, with the lowest byte first."""
    little = rows.byteswap() if sys.byteorder == "big" and rows.itemsize > 1 else rows
    return [binascii.b2a_base64(row.tobytes(), newline=False).decode("ascii") for row in little]


def joined(
    rows: FloatArray | list[FloatArray], dtype: EmbedDtype, endianness: Endianness
) -> tuple[bytes, list[dict[str, Any]]]:
    """All raw arrays in a row, and for each where it lies: `start` and `end` in bytes, and its `shape`."""
    parts: list[bytes] = []
    places: list[dict[str, Any]] = []
    start = 0
    for index, row in enumerate(rows):
        part = raw(row, dtype, endianness).tobytes()
        places.append(
            {
                "index": index,
                "embed_dtype": dtype,
                "endianness": endianness,
                "start": start,
                "end": start + len(part),
                "shape": list(row.shape),
            }
        )
        parts.append(part)
        start += len(part)
    return b"".join(parts), places


def raw(rows: FloatArray, dtype: EmbedDtype = "float32", endianness: Endianness = "native") -> NDArray[Any]:
    """`rows` in the precision and byte order of the wire, contiguous and of the same shape.

    Precisions that numpy lacks come back as unsigned integers of the same width; only their bytes mean something.
    """
    narrow = _narrowed(np.ascontiguousarray(rows), dtype)
    if endianness in ("native", sys.byteorder) or narrow.itemsize == 1:
        return narrow
    return narrow.byteswap()


def header_json(value: Any) -> str:
    """JSON that an HTTP header can carry: ASCII, on one line."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _narrowed(rows: FloatArray, dtype: EmbedDtype) -> NDArray[Any]:
    if dtype == "float32":
        return rows
    if dtype == "float16":
        # Beyond 65504 this is infinity, as in torch; numpy would also warn.
        with np.errstate(over="ignore"):
            return rows.astype(np.float16)
    import torch

    narrow = torch.from_numpy(rows).to(getattr(torch, _TORCH_NAMES[dtype]))
    whole = torch.uint16 if dtype == "bfloat16" else torch.uint8
    array: NDArray[Any] = narrow.view(whole).numpy()
    return array


def _each(rows: FloatArray | list[FloatArray], change: Callable[[FloatArray], NDArray[Any]]) -> Iterable[NDArray[Any]]:
    """Every row changed; a matrix is changed at one go."""
    return change(rows) if isinstance(rows, np.ndarray) else map(change, rows)
