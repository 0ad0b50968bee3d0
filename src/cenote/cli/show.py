"""What people see: the progress bar and the summary on stderr, the table of embeddings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .job import State
from .sinks import TableSink

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TABLE_ROWS = 20
_MATRIX_TEXTS = range(2, 9)
_SHOWN_VALUES = 4
_SHOWN_CHARS = 48


@contextmanager
def progress_bar(start: State, total_units: float | None, *, quiet: bool) -> Iterator[Callable[[State, float], None]]:
    """A bar on stderr where that is a terminal; yields the function that moves it.

    Args:
        start: Where the job starts; rates count from here.
        total_units: Units of the sources, None where unknown.
        quiet: No bar.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda state, units: None
        return
    num_before, tokens_before, seconds_before = start.num_done, start.num_tokens, start.seconds
    columns = (
        TextColumn("{task.fields[texts]:,} texts"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[texts_per_s]:,.0f} texts/s {task.fields[tokens_per_s]:,.0f} tokens/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total_units, texts=num_before, texts_per_s=0.0, tokens_per_s=0.0)

        def move(state: State, units: float) -> None:
            spent_s = max(1e-6, state.seconds - seconds_before)
            bar.update(
                task,
                completed=units,
                texts=state.num_done,
                texts_per_s=(state.num_done - num_before) / spent_s,
                tokens_per_s=(state.num_tokens - tokens_before) / spent_s,
            )

        yield move


def summary(state: State, *, resumed_at: int) -> str:
    """One line about a finished job: texts, tokens, cut, failed, seconds, texts/s."""
    rate = state.num_done / max(1e-6, state.seconds)
    line = (
        f"{state.num_done:,} texts, {state.num_tokens:,} tokens, {state.num_truncated:,} cut, "
        f"{state.num_failed:,} failed, {state.seconds:.{1 if state.seconds >= 10 else 2}f} s, {rate:,.1f} texts/s"
    )
    return f"{line} (continued at input {resumed_at:,})" if resumed_at else line


def print_embeddings(kept: TableSink) -> None:
    """Print the kept rows as a table, and for two to eight texts how similar they are."""
    from rich.console import Console

    print_table(_embeddings_table(kept), kept.num_rows - len(kept.rows))
    good = [place for place, result in enumerate(kept.results) if result.error is None]
    if kept.num_rows in _MATRIX_TEXTS and len(good) in _MATRIX_TEXTS:
        Console().print(_similarity_table(kept, good))


_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def print_marked(kept: TableSink, marks: Callable[[Any], Sequence[tuple[int, int, str, float]]]) -> None:
    """Print the kept texts with what was found in them.

    Args:
        marks: Makes of a row the start, end, label and score of each stretch of the text, in its order.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    shown = [() if result.error else marks(row) for result, row in zip(kept.results, kept.rows, strict=True)]
    labels = sorted({label for found in shown for _, _, label, _ in found})
    for result, found in zip(kept.results, shown, strict=True):
        text = re.sub(r"\s", " ", result.record.text or "")
        line, done = Text(f"{result.record.index}  ", style="dim"), 0
        for start, end, label, score in found:
            colour = _COLOURS[labels.index(label) % len(_COLOURS)]
            line.append(printable(text[done:start]), style="not dim")
            line.append(printable(text[max(start, done) : end]), style=f"not dim bold {colour}")
            line.append(printable(f"[{label} {score:.2f}]"), style=colour)
            done = max(done, end)
        line.append(printable(text[done:]), style="not dim")
        if result.error is not None:
            line.append(printable(f" failed: {result.error}"))
        console.print(line)
    _print_left_out(console, kept.num_rows - len(kept.rows))


def print_table(table: Table, num_left_out: int) -> None:
    """Print a table, and how many rows are not in it."""
    from rich.console import Console

    console = Console()
    console.print(table)
    _print_left_out(console, num_left_out)


def _print_left_out(console: Console, num_left_out: int) -> None:
    if num_left_out:
        console.print(f"... and {num_left_out:,} more; keep them all with --output FILE or `--format jsonl`.")


def _embeddings_table(kept: TableSink) -> Table:
    from rich.table import Table
    from rich.text import Text

    num_columns = kept.rows[0].shape[-1]
    table = Table(title=f"{kept.num_rows:,} x {num_columns}", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("text", overflow="fold")
    table.add_column("tokens", justify="right")
    table.add_column("embedding")
    table.add_column("norm", justify="right")
    for result, row_D in zip(kept.results, kept.rows, strict=True):
        text = Text(shortened(result.record.text or ""))  # a Text, because brackets in a string would be markup
        if result.error is not None:
            table.add_row(str(result.record.index), text, "", Text(printable(f"failed: {result.error}")), "")
            continue
        values = " ".join(f"{value:+.4f}" for value in row_D[:_SHOWN_VALUES])
        dots = " ..." if num_columns > _SHOWN_VALUES else ""
        tokens = f"{result.num_tokens} (cut)" if result.truncated else str(result.num_tokens)
        table.add_row(str(result.record.index), text, tokens, values + dots, f"{np.linalg.norm(row_D):.4f}")
    return table


def _similarity_table(kept: TableSink, places: Sequence[int]) -> Table:
    from rich.table import Table

    rows_ND = np.stack([kept.rows[place] for place in places])
    norms_N1 = np.linalg.norm(rows_ND, axis=1, keepdims=True)
    unit_ND = rows_ND / np.maximum(norms_N1, np.finfo(np.float32).tiny)
    table = Table(title="cosine similarity", title_justify="left")
    for heading in ("", *(str(kept.results[place].record.index) for place in places)):
        table.add_column(heading, justify="right")
    for place, row_N in zip(places, unit_ND @ unit_ND.T, strict=True):
        table.add_row(str(kept.results[place].record.index), *(f"{value:.3f}" for value in row_N))
    return table


def shortened(text: str) -> str:
    """The text on one line, its middle left out where it is long, without what a terminal would obey."""
    line = " ".join(text.split())
    if len(line) > _SHOWN_CHARS:
        line = f"{line[: _SHOWN_CHARS - 13]} ... {line[-8:]}"
    return printable(line)


def printable(line: str) -> str:
    """The line without what a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
