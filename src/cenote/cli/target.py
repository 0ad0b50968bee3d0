"""Where one job writes: its output, its state and its list of failed inputs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click

from ..errors import BadInput, ConfigError
from .job import FailedInputs, Model, State, state_path_of
from .show import TABLE_ROWS
from .sinks import Answer, ErrorLog, JsonlSink, NpySink, Result, Sink, TableSink, open_at
from .sources import Sources, check_outputs

_FORMATS = {".npy": "npy", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class Reading(Model, Protocol):
    """How a command reads a model, and what it says of a finished row."""

    @property
    def num_columns(self) -> int:
        """Size of a finished row."""

    @property
    def answer(self) -> Answer:
        """What the JSON line of a row says."""

    def show(self, kept: TableSink) -> None:
        """Print the kept rows for a reader."""


@dataclass(frozen=True)
class Target:
    """What a job writes.

    Args:
        output: The file, None for stdout.
        form: `npy`, `jsonl` or `table`.
        skip: Whether failed inputs are listed and skipped.
        errors_path: Where they are listed, None for stderr.
        force: Whether whatever lies at `output` is overwritten.
    """

    output: Path | None
    form: str
    skip: bool
    errors_path: Path | None
    force: bool

    @classmethod
    def of(
        cls,
        sources: Sources,
        output: Path | None,
        form: str,
        errors_path: Path | None,
        force: bool,
        *,
        skip: bool,
        forms: Sequence[str],
    ) -> Target:
        """What the user asked for, completed and checked against `sources`.

        Raises:
            ConfigError: The parts do not fit together, or an input would be overwritten.
        """
        if skip and errors_path is None and output is not None:
            errors_path = output.with_name(output.name + ".errors.jsonl")
        target = cls(output, _form_of(form, output, forms), skip, errors_path, force)
        check_outputs([path for path in (output, errors_path) if path is not None], sources.files)
        return target

    @property
    def state_path(self) -> Path | None:
        """Where the state of an unfinished job is kept; stdout has none."""
        return state_path_of(self.output) if self.output is not None else None

    def open(self, reading: Reading, state: State) -> Sink:
        """Open the output where `state` left it, for the rows of `reading`."""
        if self.form == "table":
            return TableSink(TABLE_ROWS)
        if self.output is None:
            return JsonlSink(sys.stdout.buffer, reading.answer, is_stream=True)
        if self.form == "npy":
            return NpySink(self.output, reading.num_columns, state.output_bytes)
        return JsonlSink(open_at(self.output, state.output_bytes), reading.answer)

    def open_errors(self, state: State) -> FailedInputs | None:
        """Open the list of failed inputs where `state` left it; None where a failed input ends the job."""
        if not self.skip:
            return None
        return ErrorLog(self.errors_path, state.errors_bytes) if self.errors_path is not None else _ErrorLines()


class _ErrorLines:
    """Failed inputs as lines on stderr."""

    def write(self, result: Result) -> None:
        click.echo(f"failed: input {result.record.index}: {result.error}", err=True)

    def flush(self) -> int:
        return 0

    def close(self) -> None:
        return None


def _form_of(form: str, output: Path | None, forms: Sequence[str]) -> str:
    if output is None:
        if form == "npy":
            raise ConfigError("--format npy needs a file.", fix="Name it with --output.", param="--format")
        return form if form != "auto" else "table" if sys.stdout.isatty() else "jsonl"
    if form == "table":
        raise ConfigError("--format table goes to the terminal, not to a file.", fix="Leave --output out.")
    suffix = output.suffix.lower()
    if form == "auto" and _FORMATS.get(suffix) not in forms:
        raise BadInput(
            f"The format of {output} is not known by its name.",
            allowed=f"Known are {', '.join(name for name, form in _FORMATS.items() if form in forms)}.",
            fix="Rename it, or give --format.",
            param="--output",
        )
    return form if form != "auto" else _FORMATS[suffix]
