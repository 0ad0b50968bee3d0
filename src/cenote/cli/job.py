"""One run over many inputs: records in, rows out, in order, in bounded memory, and able to go on after a kill.

Beside an unfinished OUTPUT lies OUTPUT.partial: what the job was, and how much of it had reached the disk at the last
checkpoint. Whatever was written after that is dropped when the job goes on.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson

from ..errors import BadInput, CenoteError, ConfigError, ForwardFailed
from ..types import Input, Outcome
from .sinks import Finished, Result, Rows, Sink
from .sources import Record, chunks

CHUNK_TEXTS = 256
CHUNK_CHARS = 128 * 1024
CHUNKS_IN_FLIGHT = 8
CHECKPOINT_EVERY_S = 1.0


@dataclass(slots=True)
class State:
    """How far a job is, as of its last checkpoint.

    Args:
        job: What the job is; a job with another description must not go on from here.
        num_done: Records finished, failed ones included.
        num_failed: Records without a row.
        num_tokens: Tokens of all finished records, after cutting.
        num_truncated: Records that were cut.
        output_bytes: Size of the output.
        errors_bytes: Size of the error file.
        seconds: Time spent, over all runs.
    """

    job: Mapping[str, Any]
    num_done: int = 0
    num_failed: int = 0
    num_tokens: int = 0
    num_truncated: int = 0
    output_bytes: int = 0
    errors_bytes: int = 0
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write to `path`; a kill leaves either the old state or this one."""
        fresh = path.with_name(path.name + ".new")
        with fresh.open("wb") as file:
            file.write(orjson.dumps(asdict(self)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


class Underway(Protocol):
    """A chunk that the model works on."""

    def result(self) -> Outcome | Finished:
        """Wait for the end."""

    def cancel(self) -> object:
        """Give it up; harmless when it has ended."""


class Model(Protocol):
    """What the job needs of a model."""

    def submit(self, inputs: Sequence[Input]) -> Underway:
        """Start on `inputs`, one row each; those that fail are in the outcome's `errors`."""


class FailedInputs(Protocol):
    """Where failed inputs are written when they do not end the job."""

    def write(self, result: Result) -> None:
        """Take note of one failed input."""

    def flush(self) -> int:
        """Make everything written so far last, and return the size in bytes."""

    def close(self) -> None:
        """Flush and close."""


@dataclass(slots=True)
class Job:
    """A run over `records`.

    Args:
        model: Turns inputs into rows.
        sink: Takes the rows.
        num_columns: D, the width of a row.
        state: Where to start; kept up to date.
        state_path: Where checkpoints go; None where the output cannot be taken up again.
        failed: Takes failed inputs; None means that the first one ends the job.
        on_progress: Called after each chunk with the state and the source units used.
    """

    model: Model
    sink: Sink
    num_columns: int
    state: State
    state_path: Path | None
    failed: FailedInputs | None
    on_progress: Callable[[State, float], None]
    _window: deque[tuple[list[Record], Underway | None]] = field(default_factory=deque)
    _started_s: float = field(default_factory=time.monotonic)
    _saved_s: float = -1e9

    def run(self, records: Iterable[Record]) -> None:
        """Finish all records that `state` does not count as done.

        Raises:
            CenoteError: An input failed and `failed` is None; what was finished before it is kept.
        """
        self._started_s -= self.state.seconds
        rest = islice(records, self.state.num_done, None)
        try:
            for chunk in chunks(rest, CHUNK_TEXTS, CHUNK_CHARS):
                self._window.append((chunk, self._submit(chunk)))
                if len(self._window) >= CHUNKS_IN_FLIGHT:
                    self._finish_first()
            while self._window:
                self._finish_first()
        except CenoteError:
            self._checkpoint()
            raise
        finally:
            for _, underway in self._window:
                if underway is not None:
                    underway.cancel()
        self._checkpoint()

    def _submit(self, chunk: Sequence[Record]) -> Underway | None:
        inputs = [record.input for record in chunk if record.text is not None]
        return self.model.submit(inputs) if inputs else None

    def _finish_first(self) -> None:
        chunk, underway = self._window[0]
        outcome = underway.result() if underway is not None else None
        self._window.popleft()
        results, rows_ND = merge(chunk, outcome, self.num_columns)
        if self.failed is None:
            raise_first(results)
        self.sink.write(results, rows_ND)
        for result in results:
            if result.error is not None and self.failed is not None:
                self.failed.write(result)
        self._count(results)
        self.on_progress(self.state, chunk[-1].end)
        if time.monotonic() - self._saved_s >= CHECKPOINT_EVERY_S:
            self._checkpoint()

    def _count(self, results: Sequence[Result]) -> None:
        self.state.num_done += len(results)
        self.state.num_failed += sum(result.error is not None for result in results)
        self.state.num_tokens += sum(result.num_tokens for result in results)
        self.state.num_truncated += sum(result.truncated for result in results)
        self.state.seconds = time.monotonic() - self._started_s

    def _checkpoint(self) -> None:
        # The data first: a state on disk never counts rows that are not.
        self.state.output_bytes = self.sink.flush()
        self.state.errors_bytes = self.failed.flush() if self.failed is not None else self.state.errors_bytes
        if self.state_path is not None:
            self.state.save(self.state_path)
        self._saved_s = time.monotonic()


def merge(chunk: Sequence[Record], outcome: Outcome | Finished | None, num_columns: int) -> tuple[list[Result], Rows]:
    """Lay the outcome of a chunk's readable texts beside its unreadable records; their rows are NaN, `[N, D]`.

    Where rows have sizes of their own they come as a list, in which those of unreadable records are empty.
    """
    rows_ND: Rows = np.full((len(chunk), num_columns), np.nan, np.float32)
    if outcome is not None and isinstance(outcome.rows, list):
        rows_ND = [np.zeros(0, np.float32)] * len(chunk)
    results = [Result(record, error=record.error) for record in chunk]
    if outcome is None:
        return results, rows_ND
    from ..pieces import moved  # not above: `cenote --help` needs no tokenizer

    places = [place for place, record in enumerate(chunk) if record.text is not None]
    for at, place in enumerate(places):
        error = outcome.errors.get(at)
        encoded = outcome.encoded[at]
        if error is not None:
            results[place] = Result(chunk[place], error=moved(error, chunk[place].index))
            continue
        rows_ND[place] = outcome.rows[at]
        results[place] = Result(chunk[place], len(encoded.ids), encoded.num_cut > 0)
    return results, rows_ND


def raise_first(results: Sequence[Result]) -> None:
    """Raise the error of the first failed input, under its number in the whole job; do nothing if all went well."""
    for result in results:
        if result.error is not None:
            kind = BadInput if isinstance(result.error, BadInput) else ForwardFailed
            index, said = result.record.index, str(result.error)
            said = said if said.endswith((".", "!", "?")) else f"{said}."
            raise kind(
                said if f"nput {index} " in said else f"Input {index}: {said}",
                fix="To go on without inputs that fail, give --errors skip.",
                index=index,
            ) from result.error


def state_path_of(output: Path) -> Path:
    """Where the state of a job that writes `output` is kept."""
    return output.with_name(output.name + ".partial")


def take_up(output: Path, job: Mapping[str, Any], *, can_resume: bool, force: bool) -> State:
    """The state from which a job that writes `output` starts: the interrupted one's, or a new one.

    Args:
        output: The file the job writes.
        job: What the job is.
        can_resume: Whether its inputs can be read a second time.
        force: Start over, whatever is there.

    Raises:
        ConfigError: There is a finished output, or an unfinished one of another job.
    """
    path = state_path_of(output)
    if force or not (path.exists() or output.exists()):
        return State(job)
    if not path.exists():
        raise ConfigError(f"{output} exists and is finished.", fix="Overwrite it with --force.", param="--output")
    state = _load(path)
    changed = "standard input cannot be read again" if not can_resume else _changes(state.job, job)
    if not changed and state.output_bytes > (output.stat().st_size if output.exists() else 0):
        changed = f"{output} is shorter than {state.output_bytes} bytes"
    if changed:
        raise ConfigError(
            f"{output} is unfinished and cannot be continued: {changed}.",
            fix="Start over with --force, or name another --output.",
            param="--output",
        )
    return state


def _load(path: Path) -> State:
    try:
        return State(**orjson.loads(path.read_bytes()))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise ConfigError(f"{path} is no state of a job: {error}.", fix="Start over with --force.") from error


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    new = orjson.loads(orjson.dumps(new))
    names: Iterator[str] = (name for name in {**old, **new} if old.get(name) != new.get(name))
    return ", ".join(f"{name} is not what it was" for name in names)
