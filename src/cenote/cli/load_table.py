"""What people see of a load: a bar while it runs, tables at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .show import printable

if TYPE_CHECKING:
    from rich.table import Table

    from ..loadgen.client import Asked
    from ..loadgen.drive import Phase
    from ..loadgen.summary import Summary

_BUSY = 0.8
"""Share of a processor from which the load generator itself may be what limits."""


@contextmanager
def watching(label: str, *, quiet: bool) -> Iterator[Callable[[Phase, bool], None]]:
    """A bar on stderr where that is a terminal; yields what moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda phase, is_warmup: None
        return
    said = TextColumn("{task.fields[done]:,} answered, {task.fields[failed]:,} failed, {task.fields[open]:,} under way")
    columns = (TextColumn("{task.description}"), BarColumn(), said, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=1.0, done=0, failed=0, open=0)

        def move(phase: Phase, is_warmup: bool) -> None:
            failed = sum(bool(sample.error) for sample in phase.samples)
            ended = len(phase.samples)
            bar.update(
                task,
                description=f"{label}, warm-up" if is_warmup else label,
                completed=phase.share_done,
                done=ended - failed,
                failed=failed,
                open=phase.num_begun - ended,
            )

        yield move


def print_runs(asked: Asked, runs: Sequence[Summary]) -> None:
    """Print the runs, what failed, and what the server said of its time."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, width=180)
    model = asked.fields.get("model")
    named = f", model {model}" if model else ""
    line = f"{asked.url} ({asked.dialect.name}{named}), {asked.num_texts} a request: {asked.texts.described()}"
    console.print(printable(line), markup=False)
    console.print(_main_table(runs))
    if any(run.server_ms for run in runs):
        console.print(_server_table(runs))
    for run in runs:
        for kind, failures in run.failures.items():
            console.print(f"{run.load}: {failures.count:,} x {kind}: {printable(failures.first)}", markup=False)
        if run.warmup_failed:
            console.print(f"{run.load}: {run.warmup_failed:,} of the {run.warmup_requests:,} to warm up failed.")
        if run.cpu_share > _BUSY:
            console.print(
                f"{run.load}: the load generator used {run.cpu_share:.0%} of a processor; it may be what limits.",
                style="yellow",
            )


def _main_table(runs: Sequence[Summary]) -> Table:
    headings = ("load", "answered", "failed", "requests/s", "texts/s", "tokens/s")
    table = _table(*headings, "p50 ms", "p90", "p95", "p99", "max", "late p99", "own CPU")
    for run in runs:
        latency = [_ms(run.latency_ms.get(name)) for name in ("p50", "p90", "p95", "p99", "max")]
        table.add_row(
            run.load,
            f"{run.answered:,}",
            f"{run.failed:,}",
            f"{run.requests_per_s:,.1f}",
            f"{run.texts_per_s:,.1f}",
            "-" if run.tokens_per_s is None else f"{run.tokens_per_s:,.0f}",
            *latency,
            _ms(run.late_ms.get("p99")),
            f"{run.cpu_share:.0%}",
        )
    return table


def _server_table(runs: Sequence[Summary]) -> Table:
    table = _table("load", "server says", "p50 ms", "p90", "p95", "p99", "max")
    for run in runs:
        for name, found in run.server_ms.items():
            table.add_row(run.load, name, *(_ms(found.get(at)) for at in ("p50", "p90", "p95", "p99", "max")))
    return table


def _table(*headings: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table: Any = Table(box=SIMPLE_HEAD)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    made: Table = table
    return made


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value >= 1 else f"{value:.2f}"
