"""Where the rows of a job go: a growing .npy, JSON lines, or the few rows that a table shows.

A sink is written in input order and can be taken up again at a byte position, so an interrupted job goes on where its
last checkpoint was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import orjson
from numpy.lib import format as npy

from ..errors import CenoteError
from ..types import Encoded, FloatArray
from .sources import Record


@dataclass(frozen=True, slots=True)
class Result:
    """One finished input.

    Args:
        record: The input.
        num_tokens: Its tokens after cutting.
        truncated: Whether it was cut.
        error: Why it has no row.
    """

    record: Record
    num_tokens: int = 0
    truncated: bool = False
    error: CenoteError | None = None


Rows: TypeAlias = "FloatArray | list[Any]"
"""Rows of one size, `[N, D]`, arrays of their own sizes, or whatever else a command makes of an input."""


class Finished(NamedTuple):
    """A chunk that a command has answered, in the order of its inputs; an `Outcome` says as much.

    Args:
        rows: What is made of each input.
        encoded: Its tokens.
        errors: Position of an input -> why it has no row.
    """

    rows: Rows
    encoded: Sequence[Encoded]
    errors: Mapping[int, CenoteError]


class Sink(Protocol):
    """What the job needs of an output."""

    def write(self, results: Sequence[Result], rows_ND: Rows) -> None:
        """Append results and their rows, float32 `[N, D]` or a list; rows of failed inputs are NaN or empty."""

    def flush(self) -> int:
        """Make everything written so far last, and return the output's size in bytes."""

    def close(self) -> None:
        """Flush and close."""


class NpySink:
    """A .npy file, float32 `[N, D]`, one row per input; it is a valid file after each flush.

    Args:
        path: The file.
        num_columns: D.
        num_bytes: Size at which an interrupted file is taken up; 0 starts a new one.
    """

    def __init__(self, path: Path, num_columns: int, num_bytes: int = 0) -> None:
        self._num_columns = num_columns
        self._file = path.open("r+b" if num_bytes else "w+b")
        # numpy pads the header so that the number of rows can grow in place without moving the data.
        self._num_header_bytes = num_bytes and self._header_end()
        self._num_rows = (num_bytes - self._num_header_bytes) // (4 * num_columns)
        if not num_bytes:
            self._write_header()
            self._num_header_bytes = self._file.tell()
        self._file.truncate(self._num_header_bytes + 4 * num_columns * self._num_rows)
        self._file.seek(0, os.SEEK_END)

    def write(self, results: Sequence[Result], rows_ND: Rows) -> None:
        self._file.write(np.ascontiguousarray(rows_ND, "<f4").data)
        self._num_rows += len(rows_ND)

    def flush(self) -> int:
        # Rows before the header: a reader never finds a header that promises rows that are not there.
        self._file.flush()
        self._file.seek(0)
        self._write_header()
        _synced(self._file)
        return self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _header_end(self) -> int:
        npy.read_magic(self._file)
        npy.read_array_header_1_0(self._file)
        return self._file.tell()

    def _write_header(self) -> None:
        shape = (self._num_rows, self._num_columns)
        npy.write_array_header_1_0(self._file, {"descr": "<f4", "fortran_order": False, "shape": shape})


Answer: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Makes of a finished row `[D]` what its JSON line says."""


class JsonlSink:
    """JSON lines: index, the record's own id, the answer, tokens, truncated. Failed inputs have no line.

    Args:
        file: Opened for binary writing, at the place to go on.
        answer: What a line says of a row.
        is_stream: Whether it is a stream of the shell, which has no size, cannot be synced and is not ours to close.
    """

    def __init__(self, file: IO[bytes], answer: Answer, *, is_stream: bool = False) -> None:
        self._file = file
        self._answer = answer
        self._is_stream = is_stream

    def write(self, results: Sequence[Result], rows_ND: Rows) -> None:
        for result, row_D in zip(results, rows_ND, strict=True):
            if result.error is None:
                row_D = np.ascontiguousarray(row_D, np.float32) if isinstance(row_D, np.ndarray) else row_D
                self._file.write(json_line(result, self._answer(row_D)))

    def flush(self) -> int:
        if not self._is_stream:
            return _synced(self._file)
        self._file.flush()
        return 0

    def close(self) -> None:
        self.flush()
        if not self._is_stream:
            self._file.close()


@dataclass(slots=True)
class TableSink:
    """Keeps the first rows for a table and counts the rest.

    Args:
        max_rows: How many are kept.
    """

    max_rows: int
    results: list[Result] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    num_rows: int = 0

    def write(self, results: Sequence[Result], rows_ND: Rows) -> None:
        room = self.max_rows - len(self.results)
        self.results.extend(results[:room])
        self.rows.extend(np.array(row_D) if isinstance(row_D, np.ndarray) else row_D for row_D in rows_ND[:room])
        self.num_rows += len(results)

    def flush(self) -> int:
        return 0

    def close(self) -> None:
        return None


class ErrorLog:
    """Failed inputs as JSON lines: index, the record's own id, error, kind. The file appears with the first one.

    Args:
        path: The file.
        num_bytes: Size at which an interrupted file is taken up.
    """

    def __init__(self, path: Path, num_bytes: int = 0) -> None:
        self._path = path
        self._file: IO[bytes] | None = open_at(path, num_bytes) if num_bytes else None
        if not num_bytes:
            path.unlink(missing_ok=True)

    def write(self, result: Result) -> None:
        """Append one failed input."""
        if self._file is None:
            self._file = self._path.open("wb")
        kind = result.error.kind if result.error else ""
        self._file.write(_line({**_origin(result.record), "error": str(result.error), "kind": kind}))

    def flush(self) -> int:
        """Make everything written so far last, and return the file's size in bytes."""
        return _synced(self._file) if self._file else 0

    def close(self) -> None:
        """Flush and close."""
        if self._file:
            _synced(self._file)
            self._file.close()


def open_at(path: Path, num_bytes: int) -> IO[bytes]:
    """Open for appending after `num_bytes`, dropping whatever was written later; 0 starts a new file."""
    file = path.open("r+b" if num_bytes else "wb")
    file.truncate(num_bytes)
    file.seek(num_bytes)
    return file


def json_line(result: Result, answer: Mapping[str, Any]) -> bytes:
    """The line of an input that has an answer."""
    used = {"tokens": result.num_tokens, "truncated": result.truncated}
    return _line({**_origin(result.record), **answer, **used})


def _origin(record: Record) -> dict[str, Any]:
    return {"index": record.index} if record.id is None else {"index": record.index, "id": record.id}


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def _synced(file: IO[bytes]) -> int:
    file.flush()
    os.fsync(file.fileno())
    return file.tell()
