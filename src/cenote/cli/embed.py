"""`cenote embed`: texts in, vectors out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click

from ..config import MachineSettings, ModelSettings, ShellSettings
from .options import Given, settings
from .sinks import TableSink
from .sources import STDIN, Sources
from .target import Target

_EXAMPLES = """\b
Examples:
  cenote embed "a cat" "a kitten"                        a table, and their similarity
  cenote embed "a cat" | jq .embedding                   JSON lines into a pipe
  cenote embed --input lines.txt --output rows.npy       one text per line
  cenote embed --input docs.jsonl --field body --output rows.jsonl
  cenote embed --input docs.parquet --field body --output rows.npy --errors skip

\b
A .npy has one float32 row per input, NaN where an input failed. JSON lines hold index, id (where
the input has one), embedding, tokens and truncated, and leave failed inputs out. With --errors skip
failed inputs are listed in OUTPUT.errors.jsonl.
A job that was interrupted goes on when the same command is run again: OUTPUT.partial says how far
it came, and disappears at the end. A finished OUTPUT is not overwritten without --force.
"""


_PATH = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=_EXAMPLES)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--input", "files", multiple=True, metavar="FILE", help="File of texts, - for standard input; may be repeated."
)
@click.option(
    "--field", help="JSON field or Parquet column that holds the text; named, lines are JSON. [default: text]"
)
@click.option(
    "--lines",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    help="What a line is. [default: auto, which goes by --field and the file's name (.jsonl, .ndjson)]",
)
@click.option("--output", type=_PATH, metavar="FILE", help="Write to this file, .npy or .jsonl.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "table", "jsonl", "npy"]),
    default="auto",
    help="[default: auto, by the output's name, else a table on a terminal and JSON lines into a pipe]",
)
@click.option("--force", is_flag=True, help="Start over and overwrite what is at --output.")
@click.option(
    "--errors",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="Whether an input that fails ends the job or is skipped and listed. [default: raise]",
)
@click.option(
    "--errors-file", type=_PATH, metavar="FILE", help="Where skipped inputs are listed. [default: OUTPUT.errors.jsonl]"
)
@click.option("--prompt", help="Text put before every input.")
@click.option("--prompt-name", help="Name of the model's own prompt to put before every input.")
@click.option("--dimensions", type=int, help="Keep this many leading values (Matryoshka models).")
@click.option("--normalize/--no-normalize", default=None, help="Unit length or not. [default: as the model says]")
@settings(ModelSettings, MachineSettings, ShellSettings)
def embed(
    given: Given,
    texts: tuple[str, ...],
    files: tuple[str, ...],
    field: str | None,
    lines: Literal["auto", "text", "json"],
    output: Path | None,
    form: str,
    force: bool,
    errors: str,
    errors_file: Path | None,
    **params: Any,
) -> None:
    """Turn texts into vectors.

    Texts are arguments, lines of files or of standard input, fields of JSON lines, or columns of Parquet files.
    Inputs longer than the model allows are cut, and counted, unless --on-long refuse is given.
    """
    if not texts and not files and not sys.stdin.isatty():
        files = (STDIN,)
    lines = "json" if lines == "auto" and field is not None else lines
    sources = Sources(texts, files, field or "text", lines)
    sources.check()
    target = Target.of(sources, output, form, errors_file if errors == "skip" else None, force, skip=errors == "skip")
    run(given, sources, target, {name: value for name, value in params.items() if value is not None})


def run(given: Given, sources: Sources, target: Target, params: Mapping[str, Any]) -> None:
    """Run the job from where it stands to its end, then print what there is to print."""
    from .embedder import description, open_embedder
    from .job import Job, State, take_up
    from .show import print_embeddings, progress_bar, summary

    quiet = given.settings(ShellSettings).quiet
    records = sources.read()
    can_resume = target.output is not None and sources.identity() is not None
    state = State({})
    if target.output is not None:
        what = description(given, sources, target.form, params)
        state = take_up(target.output, what, can_resume=can_resume, force=target.force)
    resumed_at = state.num_done
    with ExitStack() as stack:
        embedder = stack.enter_context(open_embedder(given, params))
        if target.state_path is not None:  # before the output, so that an output without a state is a finished one
            state.save(target.state_path)
        sink = target.open(embedder.num_columns, state)
        stack.callback(sink.close)
        failed = target.open_errors(state)
        if failed is not None:
            stack.callback(failed.close)
        move = stack.enter_context(progress_bar(state, sources.total_units, quiet=quiet))
        job = Job(embedder, sink, embedder.num_columns, state, target.state_path, failed, move)
        try:
            job.run(records)
        except KeyboardInterrupt:
            if can_resume:
                click.echo(f"{target.output} is unfinished; the same command goes on where it stopped.", err=True)
            raise
    if isinstance(sink, TableSink):
        print_embeddings(sink)
    if target.state_path is not None:
        target.state_path.unlink()
    if not quiet:
        click.echo(summary(state, resumed_at=resumed_at), err=True)
