"""Where the texts of a job come from: arguments, lines, JSON lines, Parquet columns. One at a time, in order.

A record that cannot be read (not UTF-8, not JSON, no such field) does not end the stream: it carries its error, and the
job decides what an error means.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import orjson

from ..errors import BadInput, CenoteError, ConfigError, MissingExtra
from ..types import Pair

STDIN = "-"
_JSON_SUFFIXES = (".jsonl", ".ndjson")
_ROWS_PER_READ = 1024

Lines = Literal["auto", "text", "json"]
"""What a line is; `auto` goes by the file's name."""


@dataclass(frozen=True, slots=True)
class Record:
    """One input of the job.

    Args:
        index: Position among all inputs of the job, counted from 0.
        text: The text, or None where it could not be read.
        end: Units of the sources (see `total_units`) that are used up after this record.
        id: The record's own `id`, where its file has one.
        error: Why there is no text.
        text_pair: The second text, where the job reads pairs.
    """

    index: int
    text: str | None
    end: float
    id: Any = None
    error: CenoteError | None = None
    text_pair: str | None = None

    @property
    def input(self) -> str | Pair:
        """What the model reads; only of a record that has a text."""
        assert self.text is not None
        return self.text if self.text_pair is None else Pair(self.text, self.text_pair)


class _Found(NamedTuple):
    """What stands at one place of a file; `end` is how many units of the file are used up after it."""

    end: float
    text: str | None = None
    text_pair: str | None = None
    id: Any = None
    error: CenoteError | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """All inputs of one job: the arguments first, then each file in turn.

    Args:
        texts: Texts given as arguments.
        files: Paths, `-` for standard input.
        field: Field of a JSON line, or column of a Parquet file, that holds the text.
        lines: What a line is: `text`, `json`, or `auto`, which goes by the file's name.
        field_pair: Field or column that holds the second text of a pair; None where inputs are single texts.
    """

    texts: tuple[str, ...]
    files: tuple[str, ...]
    field: str = "text"
    lines: Lines = "auto"
    field_pair: str | None = None

    def paired(self, first: str, second: str) -> Sources:
        """The same inputs as pairs, each of two fields of a JSON line or two columns.

        Raises:
            ConfigError: Lines are to be read as plain text, which has no fields.
        """
        if self.lines == "text":
            raise ConfigError("--lines text has no fields to pair.", fix="Leave it out.", param="--lines")
        return replace(self, field=first, field_pair=second, lines="json")

    def check(self) -> None:
        """Raise `BadInput` where there is nothing to read or a file is not there, before any model is loaded."""
        if not self.texts and not self.files:
            raise BadInput(
                "There is no text.",
                allowed="Texts come as arguments, as --input FILE, or on standard input.",
                fix="Run the command with --help for examples.",
            )
        if self.files.count(STDIN) > 1:
            raise BadInput("Standard input is named more than once.", fix="Give `--input -` once.", param="--input")
        for name in self.files:
            if name != STDIN and not Path(name).is_file():
                raise BadInput(f"There is no file {name}.", fix="Check the path.", param="--input")

    @property
    def total_units(self) -> float | None:
        """Bytes of all inputs, for the progress bar; None where standard input has no known size."""
        if STDIN in self.files:
            return None
        return float(sum(_size(text) for text in self.texts) + sum(Path(name).stat().st_size for name in self.files))

    def identity(self) -> list[Any] | None:
        """What tells these inputs from changed ones: the texts, and each file's path, size and time.

        None for standard input, which cannot be read a second time.
        """
        if STDIN in self.files:
            return None
        stats = [(str(Path(name).resolve()), Path(name).stat()) for name in self.files]
        return [list(self.texts), [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats]]

    def read(self) -> Iterator[Record]:
        """All records, in order.

        Raises:
            BadInput: There is none, or a file is not what its name says; before the first record is asked for.
        """
        records = self._read()
        first = next(records, None)
        if first is None:
            raise BadInput(
                f"There is no text in {', '.join(self.files)}.".replace(f" {STDIN}.", " standard input."),
                fix="Give texts as arguments, as --input FILE, or on standard input.",
            )
        return itertools.chain([first], records)

    def _read(self) -> Iterator[Record]:
        index, used = 0, 0.0
        for text in self.texts:
            used += _size(text)
            yield _from_argument(index, text, used)
            index += 1
        for name in self.files:
            end = used
            for found in self._read_file(name):
                end = used + found.end
                yield Record(index, found.text, end, found.id, found.error, found.text_pair)
                index += 1
            used = end

    def _read_file(self, name: str) -> Iterator[_Found]:
        is_json = self.lines == "json" or (self.lines == "auto" and name.endswith(_JSON_SUFFIXES))
        if name == STDIN:
            yield from self._read_lines(sys.stdin.buffer, "standard input", is_json)
        elif name.endswith(".parquet"):
            yield from self._read_parquet(name)
        else:
            with Path(name).open("rb") as file:
                yield from self._read_lines(file, name, is_json)

    def _read_lines(self, file: BinaryIO, name: str, is_json: bool) -> Iterator[_Found]:
        num_bytes = 0
        for number, line in enumerate(file, 1):
            num_bytes += len(line)
            if is_json and not line.strip():
                continue
            try:
                found = self._from_json(line) if is_json else _Found(0, _from_line(line, first=number == 1))
            except ValueError as error:
                found = _Found(0, error=BadInput(f"Line {number} of {name}: {error}"))
            yield found._replace(end=num_bytes)

    def _from_json(self, line: bytes) -> _Found:
        record = orjson.loads(line)
        if isinstance(record, str) and self.field_pair is None:
            return _Found(0, record)
        if not isinstance(record, dict):
            raise ValueError("It is neither a JSON object nor a JSON string.")
        return _found([_text_of(record, name) for name in self._fields], record.get("id"))

    @property
    def _fields(self) -> list[str]:
        return [self.field] if self.field_pair is None else [self.field, self.field_pair]

    def _read_parquet(self, name: str) -> Iterator[_Found]:
        table = _open_parquet(name)
        columns = table.schema_arrow.names
        lacking = [column for column in self._fields if column not in columns]
        if lacking:
            raise BadInput(
                f"{name} has no column {lacking[0]!r}.",
                allowed=f"It has {', '.join(columns)}.",
                fix="Name the column with --field.",
                param="--field",
            )
        has_id = "id" in columns and "id" not in self._fields
        wanted = [*self._fields, "id"] if has_id else self._fields
        per_row = Path(name).stat().st_size / max(1, table.metadata.num_rows)
        row = 0
        for batch in table.iter_batches(batch_size=_ROWS_PER_READ, columns=wanted):
            for values in batch.to_pylist():
                row += 1
                texts, own_id = [values[field] for field in self._fields], values["id"] if has_id else None
                found = _from_cells(texts, own_id, f"Row {row} of {name}")
                yield found._replace(end=row * per_row)


def _text_of(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise ValueError(f"It has no field {field!r} but {sorted(record)}; name the field with --field.")
    text = record[field]
    if not isinstance(text, str):
        raise ValueError(f"Its field {field!r} is of type {type(text).__name__}, not a string.")
    return text


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _from_argument(index: int, text: str, end: float) -> Record:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # the shell handed over bytes that are not UTF-8
        return Record(index, None, end, error=BadInput(f"Argument {index} is not UTF-8: {error.reason}."))
    return Record(index, text, end)


def _from_line(line: bytes, *, first: bool) -> str:
    # Only the line's end is taken off: other white space belongs to the text.
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig" if first else "utf-8")


def _from_cells(texts: list[Any], own_id: Any, place: str) -> _Found:
    for text in texts:
        if not isinstance(text, str):
            return _Found(0, id=own_id, error=BadInput(f"{place}: It holds {type(text).__name__}, not a string."))
    return _found(texts, own_id)


def _found(texts: Sequence[str], own_id: Any) -> _Found:
    text, *pair = texts
    return _Found(0, text, pair[0] if pair else None, own_id)


def _open_parquet(name: str) -> Any:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Reading {name} needs pyarrow.", fix="Run `pip install 'cenote[parquet]'`.") from error
    try:
        return parquet.ParquetFile(name)
    except ValueError as error:
        raise BadInput(f"{name} is not a Parquet file: {error}", param="--input") from error


def chunks(records: Iterable[Record], max_texts: int, max_chars: int) -> Iterator[list[Record]]:
    """Group records, in order, by at most `max_texts` and about `max_chars` characters."""
    group: list[Record] = []
    num_chars = 0
    for record in records:
        group.append(record)
        num_chars += len(record.text or "") + len(record.text_pair or "")
        if len(group) >= max_texts or num_chars >= max_chars:
            yield group
            group, num_chars = [], 0
    if group:
        yield group


def check_outputs(outputs: Iterable[Path], inputs: Iterable[str]) -> None:
    """Raise `ConfigError` where a file to write is one that is read, or is in no folder; before any work."""
    read = {Path(name).resolve() for name in inputs}
    for path in outputs:
        if path.resolve() in read:
            raise ConfigError(f"{path} is an input and would be overwritten.", fix="Name another file.")
        if not path.resolve().parent.is_dir():
            raise ConfigError(f"There is no folder {path.parent}.", fix="Make it first, or name another file.")
