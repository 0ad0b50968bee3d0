"""Rows of the model, kept for inputs that come again: exact, bounded in bytes, off unless asked for."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np

from .call import Call
from .scheduler import Pending
from .types import FloatArray

_ENTRY_BYTES = 512
"""About what an entry takes beside its tokens and its row."""

Key: TypeAlias = "tuple[Hashable, Hashable]"


class _Entry(NamedTuple):
    row: FloatArray
    alone: bool  # whether the task gives a list of arrays, not one row of an array
    num_bytes: int


class RowCache:
    """The rows that a model gave, least recently used ones dropped first; usable from any thread.

    A row is found by what the model read (ids, segments, what is skipped) and by how it was read, so a hit is what the
    model would give again. Options that only change a finished row are applied to it as to any other.

    Args:
        max_bytes: Most memory of keys and rows.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._lock = Lock()

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        return self._num_bytes

    def answer(self, call: Call, sequences: Sequence[Pending[Call]]) -> list[Pending[Call]]:
        """Answer what is known; returns the sequences that must run. Under the engine's lock."""
        fresh = []
        for pending in sequences:
            entry = self._find((pending.encoded.key, pending.read))
            if entry is None:
                fresh.append(pending)
                continue
            rows = [entry.row.copy()] if entry.alone else entry.row[None]
            call.work.store([pending], rows, call.work.room_for(rows))
            call.work.answered(pending)
            if pending.chunk is None:
                call.work.cached.add(pending.index)
        return fresh

    def keep(self, batch: Sequence[Pending[Call]], rows: FloatArray | list[FloatArray]) -> None:
        """Remember the rows of a forward, one for each of `batch`, but not those of calls that asked not to."""
        alone = isinstance(rows, list)
        for pending, row in zip(batch, rows, strict=True):
            if not pending.call.use_cache:
                continue
            key = (pending.encoded.key, pending.read)
            num_bytes = row.nbytes + pending.encoded.ids.nbytes + sys.getsizeof(key) + _ENTRY_BYTES
            if num_bytes <= self._max_bytes:
                # A copy, so that one row does not hold those of its whole batch.
                self._put(key, _Entry(np.array(row), alone, num_bytes))

    def _find(self, key: Key) -> _Entry | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def _put(self, key: Key, entry: _Entry) -> None:
        with self._lock:
            old = self._entries.pop(key, None)
            self._num_bytes += entry.num_bytes - (old.num_bytes if old else 0)
            self._entries[key] = entry
            while self._num_bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._num_bytes -= dropped.num_bytes
