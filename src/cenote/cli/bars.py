"""Tables of labels, scores and rankings, with a bar for each value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..types import FloatArray
from .show import TABLE_ROWS, print_table, printable, shortened
from .sinks import Result, TableSink

if TYPE_CHECKING:
    from ..outputs import RerankResult

_BAR_CHARS = 24
_NUMBERS = ("#", "tokens")


def scale(values: Sequence[float]) -> tuple[float, float]:
    """Where bars are empty and where full: 0 and 1 for probabilities and cosines, else the span of the values."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low >= -1.0 and 0.0 <= high <= 1.0 + 1e-6:  # a cosine of float32 vectors may pass 1 by a rounding
        return 0.0, 1.0
    return (low, high) if low < high else (high - 1.0, high)


def share(value: float, ends: tuple[float, float]) -> float:
    """How full the bar of `value` is, from 0 to 1."""
    low, high = ends
    return min(1.0, max(0.0, (value - low) / (high - low)))


class BarTable:
    """A table whose last columns are a value and its bar.

    Args:
        headings: Of the columns before.
        values: All that will be shown; they decide how long a full bar is, which the last heading says.
        title: A text to stand above.
    """

    def __init__(self, headings: Sequence[str], values: Sequence[float], title: str | None = None) -> None:
        from rich.table import Table
        from rich.text import Text

        self._ends = scale(values)
        # A Text, because brackets in a string would be markup.
        self.table = Table(title=None if title is None else Text(shortened(title)), title_justify="left")
        for heading in headings:
            self.table.add_column(heading, overflow="fold", justify="right" if heading in _NUMBERS else "left")
        self.table.add_column("value", justify="right")
        self.table.add_column("{:.4g} to {:.4g}".format(*self._ends))

    def add(self, cells: Sequence[str], value: float | None) -> None:
        """A row; None where there is no value."""
        from rich.bar import Bar
        from rich.text import Text

        texts = [Text(cell) for cell in cells]
        if value is None:
            self.table.add_row(*texts)
            return
        bar = Bar(1.0, 0.0, share(value, self._ends), width=_BAR_CHARS, color="cyan")
        self.table.add_row(*texts, f"{value:.4f}", bar)


def print_classes(
    kept: TableSink, ranked: Callable[[FloatArray], list[tuple[str, Any]]], called: str = "label"
) -> None:
    """Print the kept inputs with their likeliest labels.

    Args:
        ranked: Makes of a row the labels to show and their values, the likeliest first.
        called: What a label is called above them.
    """
    shown = [
        [] if result.error is not None else ranked(row_L) for result, row_L in zip(kept.results, kept.rows, strict=True)
    ]
    table = BarTable(["#", "text", "tokens", called], [float(value) for labels in shown for _, value in labels])
    for result, labels in zip(kept.results, shown, strict=True):
        heads = _heads(result)
        if not labels:
            table.add(heads, None)
        for label, value in labels:
            table.add([*heads, printable(label)], float(value))
            heads = [""] * len(heads)
    print_table(table.table, kept.num_rows - len(kept.rows))


def print_scores(kept: TableSink, query: str | None) -> None:
    """Print the kept pairs with their scores; `query` stands above where all have the same."""
    pairs = list(zip(kept.results, kept.rows, strict=True))
    scores = [float(row_D[0]) for result, row_D in pairs if result.error is None]
    table = BarTable(["#", "text", "tokens"], scores, query)
    for result, row_D in pairs:
        table.add(_heads(result), None if result.error is not None else float(row_D[0]))
    print_table(table.table, kept.num_rows - len(kept.rows))


def print_ranking(query: str, ranked: Sequence[RerankResult], results: Sequence[Result], *, whole: bool) -> None:
    """Print documents from best to worst.

    Args:
        ranked: The documents; their `index` is a position in `results`.
        results: What was scored.
        whole: Whether all are printed, or as many as fit a screen.
    """
    shown = ranked if whole else ranked[:TABLE_ROWS]
    table = BarTable(["#", "text", "tokens"], [document.score for document in shown], query)
    for document in shown:
        table.add(_heads(results[document.index]), document.score)
    print_table(table.table, len(ranked) - len(shown))


def _heads(result: Result) -> list[str]:
    record = result.record
    lines = [shortened(text) for text in (record.text or "", record.text_pair) if text is not None]
    if result.error is not None:
        lines.append(printable(f"failed: {result.error}"))
        return [str(record.index), "\n".join(lines), ""]
    tokens = f"{result.num_tokens} (cut)" if result.truncated else str(result.num_tokens)
    return [str(record.index), "\n".join(lines), tokens]
