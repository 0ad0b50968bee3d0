"""Every form that an array takes on the wire reads back as the array."""

from __future__ import annotations

import base64
import sys

import numpy as np
import orjson
import pytest
import torch

from cenote.server import arrays

ROWS = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
SWAPPED: arrays.Endianness = "big" if sys.byteorder == "little" else "little"
ORDERS: tuple[arrays.Endianness, ...] = ("native", SWAPPED)


@pytest.mark.parametrize("endianness", ["native", "little", "big"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_numpy_types_read_back(dtype: arrays.EmbedDtype, endianness: arrays.Endianness) -> None:
    wire = np.dtype(dtype).newbyteorder(endianness)
    strings = arrays.base64(ROWS, dtype, endianness)
    read = np.stack([np.frombuffer(base64.b64decode(string), wire) for string in strings])
    np.testing.assert_array_equal(read.astype(dtype), ROWS.astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("bfloat16", torch.bfloat16), ("fp8_e4m3", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)],
)
def test_torch_types_read_back(dtype: arrays.EmbedDtype, kind: torch.dtype) -> None:
    content, places = arrays.joined(ROWS, dtype, "native")
    read = torch.frombuffer(bytearray(content), dtype=kind).reshape(ROWS.shape)
    assert torch.equal(read.float(), torch.from_numpy(ROWS).to(kind).float())
    assert places[-1]["end"] == len(content)


def test_byte_order_swaps_only_types_wider_than_a_byte() -> None:
    (plain,), (swapped,) = (arrays.base64(ROWS[:1], "bfloat16", order) for order in ORDERS)
    pairs = np.frombuffer(base64.b64decode(plain), np.uint8).reshape(-1, 2)
    assert base64.b64decode(swapped) == pairs[:, ::-1].tobytes()
    assert arrays.base64(ROWS, "fp8_e4m3", SWAPPED) == arrays.base64(ROWS, "fp8_e4m3", "native")


def test_rows_of_several_lengths_and_cut_rows() -> None:
    ragged = [ROWS[0, :2], ROWS[1, :5], ROWS[2, ::2]]
    content, places = arrays.joined(ragged, "float32", "native")
    for row, place in zip(ragged, places, strict=True):
        read = np.frombuffer(content[place["start"] : place["end"]], np.float32)
        np.testing.assert_array_equal(read, row)
        assert place["shape"] == [len(row)]
    cut = orjson.loads(orjson.dumps(arrays.numbers(ROWS[:, :3]), option=orjson.OPT_SERIALIZE_NUMPY))
    np.testing.assert_array_equal(np.array(cut, np.float32), ROWS[:, :3])


def test_numbers_need_no_python_floats() -> None:
    rows = arrays.numbers(ROWS[:, 1:4])
    assert {type(row) for row in rows} == {np.ndarray}
    assert all(row.flags.c_contiguous for row in rows)


def test_header_is_one_line_of_ascii() -> None:
    assert arrays.header_json({"model": "modèle\n"}).isascii()
    assert "\n" not in arrays.header_json({"model": "modèle\n"})
