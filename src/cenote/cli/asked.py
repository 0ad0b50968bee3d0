"""The flags of every command that works through many inputs: where they come from, and where the answers go."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from .sources import STDIN, Lines, Sources
from .target import Target

F = TypeVar("F", bound=Callable[..., Any])

_PATH = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Asked:
    """What the user wrote of these flags; nothing is checked before `sources` and `target` are called.

    Args:
        texts, files, field, lines: See `Sources`; `field` is None where it was not named.
        output, form, force, errors_file: See `Target`.
        errors: `raise` or `skip`.
        forms: What the command can write.
    """

    texts: tuple[str, ...]
    files: tuple[str, ...]
    field: str | None
    lines: Lines
    output: Path | None
    form: str
    force: bool
    errors: str
    errors_file: Path | None
    forms: tuple[str, ...]

    def sources(self) -> Sources:
        """The inputs; standard input where none is named and it is no terminal.

        Raises:
            BadInput: There is nothing to read, or a file is not there.
        """
        from_stdin = not self.texts and not self.files and not sys.stdin.isatty()
        lines: Lines = "json" if self.lines == "auto" and self.field is not None else self.lines
        sources = Sources(self.texts, (STDIN,) if from_stdin else self.files, self.field or "text", lines)
        sources.check()
        return sources

    def target(self, sources: Sources) -> Target:
        """Where the answers go.

        Raises:
            ConfigError: The flags do not fit together, or an input would be overwritten.
        """
        skip = self.errors == "skip"
        errors_path = self.errors_file if skip else None
        return Target.of(sources, self.output, self.form, errors_path, self.force, skip=skip, forms=self.forms)


def job_flags(*forms: str) -> Callable[[F], F]:
    """Give a command these flags; it gets them as one argument, `asked`.

    Args:
        forms: What it can write: of `table`, `jsonl` and `npy`.
    """

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_asked(**options: Any) -> Any:
            names = ("texts", "files", "field", "lines", "output", "form", "force", "errors", "errors_file")
            asked = Asked(**{name: options.pop(name) for name in names}, forms=forms)
            return command(asked=asked, **options)

        wrapped: Any = with_asked
        for flag in reversed(_flags(forms)):
            wrapped = flag(wrapped)
        return cast(F, wrapped)

    return decorate


def _flags(forms: Sequence[str]) -> list[Callable[[Any], Any]]:
    named = " or ".join(f".{form}" for form in reversed(forms) if form != "table")
    return [
        click.argument("texts", nargs=-1, metavar="[TEXT]..."),
        click.option(
            "--input",
            "files",
            multiple=True,
            metavar="FILE",
            help="File of texts, - for standard input; may be repeated.",
        ),
        click.option(
            "--field", help="JSON field or Parquet column that holds the text; named, lines are JSON. [default: text]"
        ),
        click.option(
            "--lines",
            type=click.Choice(["auto", "text", "json"]),
            default="auto",
            help="What a line is. [default: auto, which goes by --field and the file's name (.jsonl, .ndjson)]",
        ),
        click.option("--output", type=_PATH, metavar="FILE", help=f"Write to this file, {named}."),
        click.option(
            "--format",
            "form",
            type=click.Choice(["auto", *forms]),
            default="auto",
            help="[default: auto, by the output's name, else a table on a terminal and JSON lines into a pipe]",
        ),
        click.option("--force", is_flag=True, help="Start over and overwrite what is at --output."),
        click.option(
            "--errors",
            type=click.Choice(["raise", "skip"]),
            default="raise",
            help="Whether an input that fails ends the job or is skipped and listed. [default: raise]",
        ),
        click.option(
            "--errors-file",
            type=_PATH,
            metavar="FILE",
            help="Where skipped inputs are listed. [default: OUTPUT.errors.jsonl]",
        ),
    ]
