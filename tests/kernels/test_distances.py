"""Attention that scores distances too: sizes that fit no tile, distances that share rows, some rows of a text alone."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from cenote.types import FloatArray
from cenote_kernels import Distances, Kernels
from support.guarded import guarded

Ints = NDArray[np.int64]

HEADS = 2
SIZES = (1, 7, 8, 17, 33, 64)
LENGTHS = (1, 2, 6, 7, 14, 16, 17, 33, 65, 130)
KINDS = {"both": (True, True), "keys": (True, False), "queries": (False, True)}
# Rows of the distances to one side: one each; one for all beyond a few; some for two, or skipped.
ROWS: dict[str, list[int]] = {
    "each its own": list(range(1, 41)),
    "none is near": [1],
    "far ones share": [1, 2, 3, 4, 5, 6, 6, 7, 7, 7, 8, 8, 8, 8, 9],
    "some are left out": [*range(1, 21), 23, 27, 28],
}


class Tables(NamedTuple):
    """What queries and keys meet, `[R, H, K]`, and the row of each distance (key minus query) from `-far` to `far`."""

    keys: FloatArray
    queries: FloatArray
    rows: NDArray[np.int32]

    @classmethod
    def made(cls, to_one_side: list[int], size: int) -> Tables:
        rng, num = np.random.default_rng(7), 2 * to_one_side[-1] + 1
        keys, queries = (guarded(rng.normal(size=(num, HEADS, size)).astype(np.float32)) for _ in range(2))
        one_side = np.array(to_one_side, np.int32)
        return cls(keys, queries, np.concatenate([-one_side[::-1], [0], one_side]).astype(np.int32) + num // 2)

    def row_of(self, ahead: Ints) -> NDArray[np.int32]:
        far = len(self.rows) // 2
        return self.rows[np.clip(ahead, -far, far) + far]


def attend(
    kernels: Kernels, qkv: FloatArray, lengths: tuple[int, ...], tables: Tables, kinds: str, wanted: Ints | None = None
) -> FloatArray:
    """Of queries, keys and values `[T, 3, H, K]` side by side all rows, or of each sequence those at `wanted`."""
    _, _, heads, size = qkv.shape
    starts = np.cumsum([0, *lengths])[:-1]
    query = qkv
    if wanted is not None:
        query = guarded(np.concatenate([qkv[start + wanted] for start in starts]))
    query_lens = lengths if wanted is None else (len(wanted),) * len(lengths)
    query_starts = np.cumsum([0, *query_lens])[:-1]
    table = [(a, b, 1, q, n, n) for a, b, q, n in zip(query_starts, starts, query_lens, lengths, strict=True)]
    runs, positions = np.array(table, np.int32), None if wanted is None else np.tile(wanted, len(lengths))
    out = guarded(np.full((len(query), heads * size), np.nan, np.float32))
    parts = [array.ctypes.data + 4 * heads * size * part for part, array in enumerate((query, qkv, qkv))]
    with_keys, with_queries = KINDS[kinds]
    panels, queries = packed(kernels, tables.keys), guarded(np.ascontiguousarray(tables.queries.transpose(1, 0, 2)))
    record = Distances(
        panels.ctypes.data if with_keys else 0,
        queries.ctypes.data if with_queries else 0,
        tables.rows.ctypes.data,
        len(tables.keys),
        len(tables.rows) // 2,
        panels[0].size,
    )
    shape: Any = (*[3 * heads * size] * 3, heads, heads, size, size**-0.5, False, -1)
    where = 0 if positions is None else positions.ctypes.data
    last = runs.ctypes.data, len(runs), ctypes.addressof(record)
    assert not kernels.attend(out.ctypes.data, *parts, *shape, where, *last)
    return out


def packed(kernels: Kernels, keys_RHK: FloatArray) -> FloatArray:
    """The panels of each head, the last head's against a guard."""
    num, heads, size = keys_RHK.shape
    panels = guarded(np.full((heads, -(-num // 32) * 32 * size), np.nan, np.float32))
    for head in range(heads):
        kernels.pack(panels[head].ctypes.data, keys_RHK[:, head].ctypes.data, num, size, heads * size)
    return panels


def expected(qkv: FloatArray, lengths: tuple[int, ...], tables: Tables, kinds: str) -> FloatArray:
    """All rows in float64."""
    done = []
    for part in np.split(qkv.astype(np.float64), np.cumsum(lengths)[:-1]):
        query, key, value = part.transpose(1, 2, 0, 3)
        places = np.arange(len(part))
        row = tables.row_of(places - places[:, None])
        scores = query @ key.transpose(0, 2, 1)
        with_keys, with_queries = KINDS[kinds]
        if with_keys:
            scores += np.einsum("hqk,qjhk->hqj", query, tables.keys[row])
        if with_queries:
            scores += np.einsum("hjk,qjhk->hqj", key, tables.queries[row])
        scores *= qkv.shape[3] ** -0.5
        weights = np.exp(scores - scores.max(2, keepdims=True))
        done.append((weights / weights.sum(2, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(part), -1))
    return np.concatenate(done)


def made(num: int, size: int) -> FloatArray:
    """Random rows, against a guard on the right."""
    return guarded(np.random.default_rng(num).normal(size=(num, 3, HEADS, size)).astype(np.float32))


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("size", SIZES)
def test_values(kernels: Kernels, size: int, rows: str, kinds: str) -> None:
    tables = Tables.made(ROWS[rows], size)
    for lengths in (LENGTHS, *((n,) for n in LENGTHS)):
        qkv = made(sum(lengths), size)
        ours, theirs = attend(kernels, qkv, lengths, tables, kinds), expected(qkv, lengths, tables, kinds)
        assert np.abs(ours - theirs).max() <= 3e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("kinds", KINDS)
def test_a_long_text(kernels: Kernels, kinds: str) -> None:
    tables = Tables.made([*range(1, 129), *(128 + away // 3 for away in range(300))], 32)
    qkv = made(700, 32)
    ours, theirs = attend(kernels, qkv, (700,), tables, kinds), expected(qkv, (700,), tables, kinds)
    assert np.abs(ours - theirs).max() <= 3e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("size", [7, 64])
def test_a_sequence_is_the_same_alone_and_among_others(kernels: Kernels, size: int) -> None:
    tables, qkv = Tables.made(ROWS["far ones share"], size), made(sum(LENGTHS), size)
    together = attend(kernels, qkv, LENGTHS, tables, "both")
    parts = np.split(qkv, np.cumsum(LENGTHS)[:-1])
    alone = [attend(kernels, guarded(part), (len(part),), tables, "both") for part in parts]
    assert (together == np.concatenate(alone)).all()


@pytest.mark.parametrize("wanted", [(0,), (1, 2, 3), (0, 1, 5, 17, 18, 39), tuple(range(40))])
def test_a_row_is_the_same_alone_and_among_others(kernels: Kernels, wanted: tuple[int, ...]) -> None:
    tables, lengths, rows = Tables.made(ROWS["far ones share"], 17), (40, 150, 40), np.array(wanted)
    qkv = made(sum(lengths), 17)
    whole = attend(kernels, qkv, lengths, tables, "both")
    expected_rows = np.concatenate([whole[start + rows] for start in (0, 40, 190)])
    assert (attend(kernels, qkv, lengths, tables, "both", rows) == expected_rows).all()


def test_what_is_not_finite_shows_in_its_sequence_alone(kernels: Kernels) -> None:
    tables, qkv = Tables.made(ROWS["far ones share"], 32), made(30, 32)
    qkv[13, :2, 0, 5] = np.nan
    finite = [bool(np.isfinite(row).all()) for row in attend(kernels, qkv, (10, 8, 12), tables, "both")]
    assert finite == [True] * 10 + [False] * 8 + [True] * 12
