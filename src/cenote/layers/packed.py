"""What a forward takes: one frozen record, made from a `Batch` on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..types import Batch, IntArray

Wanted = Literal["first", "last", "all"] | int
"""Which rows of a sequence are read: one of them, all, or those of the token with this id."""


class Run(NamedTuple):
    """Neighbouring sequences with the same numbers of query rows, of keys and of tokens: they share one attention call.

    The keys of a sequence are its first `key_len` tokens, of `num_tokens`.
    """

    query_start: int
    key_start: int
    num_seqs: int
    query_len: int
    key_len: int
    num_tokens: int

    @property
    def query_offset(self) -> int:
        """Index of the first query in its sequence, where the queries are the last tokens."""
        return self.num_tokens - self.query_len


@dataclass(frozen=True, eq=False)
class Bounds:
    """Which rows are whose, in one attention call.

    Args:
        query_S1: Where the query rows of each sequence start, and the end, int32 `[S + 1]`, on the device.
        key_S1: The same for all tokens; equal to `query_S1` unless only some rows are wanted, or some are shared.
        query_index_Q: Index of each query row inside its sequence, int64 `[Q]`; None where queries are the last tokens
            of each sequence: all of them, or those that are not shared.
        runs: The same bounds as runs of equal lengths, on the host.
        key_rows_T: Which row of keys and values is that of each token, int64 `[T]`; None where each has its own.
    """

    query_S1: Tensor
    key_S1: Tensor
    query_index_Q: Tensor | None
    runs: tuple[Run, ...]
    key_rows_T: Tensor | None = None

    @cached_property
    def spans(self) -> NDArray[np.int32]:
        """First query, number of queries, first key and number of keys of each sequence, int32 `[S, 4]`."""
        spans = [
            (run.query_start + n * run.query_len, run.query_len, run.key_start + n * run.num_tokens, run.key_len)
            for run in self.runs
            for n in range(run.num_seqs)
        ]
        return np.array(spans, np.int32).reshape(-1, 4)

    @cached_property
    def table(self) -> NDArray[np.int32]:
        """The runs as int32 `[R, 6]`."""
        return np.array(self.runs, np.int32)


@dataclass(frozen=True, eq=False)
class Kept:
    """The rows that somebody will read after the last layer.

    Args:
        rows_Q: Their positions in the packed row, int64 `[Q]`.
        bounds: Queries are the kept rows, keys are those of all rows.
        starts_S1: Where the kept rows of each sequence start, and the end, int32 `[S + 1]`, on the host.
    """

    rows_Q: Tensor
    bounds: Bounds
    starts_S1: IntArray


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed batch on the device. Models take this and nothing else.

    Where sequences share what they begin with, `T` counts the rows that are computed, and `bounds` knows all tokens.

    Args:
        ids_T: Token ids, int32.
        segments_T: Segment ids, int32; None where all are 0.
        positions_T: Index of each token inside its sequence, int32.
        bounds: Whose rows are whose.
        kept: Rows wanted after the last layer; None for all.
        layers: Hidden states to return beside the last one, by number (0 is the embeddings).
        embeds_TD: Input embeddings to use in place of those of `ids_T`.
        adapters_T: Number of the adapter of each token's sequence, -1 for none, int32; None where none has one.
    """

    ids_T: Tensor
    segments_T: Tensor | None
    positions_T: Tensor
    bounds: Bounds
    kept: Kept | None = None
    layers: tuple[int, ...] = ()
    embeds_TD: Tensor | None = None
    adapters_T: Tensor | None = None

    @classmethod
    def of(
        cls, batch: Batch, device: torch.device, wanted: Sequence[Wanted] = (), layers: tuple[int, ...] = ()
    ) -> Packed:
        """Bring `batch` to `device`.

        Args:
            wanted: Which rows of each sequence will be read after the last layer, length `S`; () for all.
            layers: As the field.
        """
        bounds = batch.bounds
        lengths = bounds[1:] - bounds[:-1]
        ids, segments = batch.ids, batch.segments
        positions = np.arange(len(ids), dtype=np.int32) - bounds[:-1].repeat(lengths)
        bounds_S1 = query_S1 = _to(bounds, device)
        num_own, key_rows_T = lengths, None
        if batch.shared is not None and batch.rows is not None:
            own = positions >= np.repeat(batch.shared, lengths)
            ids, segments = ids[own], None if segments is None else segments[own]
            positions, num_own = positions[own], lengths - batch.shared
            query_S1, key_rows_T = _to(_starts(num_own), device), _to(batch.rows.astype(np.int64), device)
        attended = lengths if batch.attended is None else batch.attended
        keep = bool(wanted) and any(which != "all" for which in wanted)
        return cls(
            ids_T=_to(ids, device),
            segments_T=None if segments is None else _to(segments, device),
            positions_T=_to(positions, device),
            bounds=Bounds(query_S1, bounds_S1, None, find_runs(num_own, attended, lengths), key_rows_T),
            kept=_kept(batch, attended, wanted, bounds_S1, key_rows_T, device) if keep else None,
            layers=layers,
            adapters_T=None if batch.adapters is None else _to(np.repeat(batch.adapters, lengths), device),
        )

    def of_kept(self, rows_TD: Tensor) -> Tensor:
        """Of the rows that are computed, those that are kept, or those of all tokens: `[Q, ...]`."""
        if self.kept is None:
            return rows_TD if self.bounds.key_rows_T is None else rows_TD[self.bounds.key_rows_T]
        return rows_TD if len(rows_TD) != len(self.ids_T) else rows_TD[self.kept.rows_Q]


def find_runs(query_lens: IntArray, key_lens: IntArray, num_tokens: IntArray) -> tuple[Run, ...]:
    """Group neighbouring sequences of equal lengths; all three are `[S]`."""
    runs = []
    query_start = key_start = 0
    for lengths, equal in groupby(zip(query_lens.tolist(), key_lens.tolist(), num_tokens.tolist(), strict=True)):
        run = Run(query_start, key_start, sum(1 for _ in equal), *lengths)
        runs.append(run)
        query_start += run.num_seqs * run.query_len
        key_start += run.num_seqs * run.num_tokens
    return tuple(runs)


def _kept(
    batch: Batch,
    attended: IntArray,
    wanted: Sequence[Wanted],
    bounds_S1: Tensor,
    key_rows_T: Tensor | None,
    device: torch.device,
) -> Kept:
    bounds = batch.bounds
    lengths = np.diff(bounds)
    rows: list[IntArray] = []
    for start, length, which in zip(bounds[:-1].tolist(), lengths.tolist(), wanted, strict=True):
        if isinstance(which, int):
            found = np.flatnonzero(batch.ids[start : start + length] == which)
            rows.append((start + found).astype(np.int32))
            continue
        first, last = {"first": (0, 1), "last": (length - 1, length), "all": (0, length)}[which]
        rows.append(np.arange(start + first, start + last, dtype=np.int32))
    query_lens = np.array([len(r) for r in rows], np.int32)
    rows_Q = np.concatenate(rows)
    index_Q = rows_Q - np.repeat(bounds[:-1], query_lens)
    own_Q = rows_Q if batch.rows is None else batch.rows[rows_Q]
    starts_S1 = _starts(query_lens)
    return Kept(
        rows_Q=_to(own_Q.astype(np.int64), device),
        bounds=Bounds(
            _to(starts_S1, device),
            bounds_S1,
            _to(index_Q.astype(np.int64), device),
            find_runs(query_lens, attended, lengths),
            key_rows_T,
        ),
        starts_S1=starts_S1,
    )


def _starts(lengths: IntArray) -> IntArray:
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _to(array: NDArray[np.signedinteger], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    # Pinned memory lets the copy run beside the kernels of the batch before.
    return tensor.pin_memory().to(device, non_blocking=True)
