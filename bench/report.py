"""Results as records, tables (terminal and Markdown), JSON and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .flops import Dims, workload_flops
from .gemm import GemmLimit
from .rounds import Timing, least_cosines
from .subjects import REFERENCE, SUBJECTS
from .texts import Workload


@dataclass(frozen=True, slots=True)
class Row:
    """One subject on one workload.

    Args:
        subject: Its name.
        title: What tables call it.
        batch_size: Texts per batch, None where the library chooses.
        seconds: Of each round.
        texts_per_s: From the median round.
        tokens_per_s: From the median round; tokens of the texts, padding not counted.
        spread: (slowest - fastest) / median.
        cenote_ratio: Cenote's texts/s over this subject's; None without Cenote.
        least_cosine: Smallest cosine against sentence-transformers on torch; None without it.
        gemm_fraction: Share of what the machine's float32 GEMM limit would allow.
        max_rss_bytes: Peak memory of the subject's process.
    """

    subject: str
    title: str
    batch_size: int | None
    seconds: tuple[float, ...]
    texts_per_s: float
    tokens_per_s: float
    spread: float
    cenote_ratio: float | None
    least_cosine: float | None
    gemm_fraction: float
    max_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Section:
    """All subjects on one workload.

    Args:
        workload: Its name.
        description: Number of texts and lengths in tokens.
        bound_texts_per_s: What the GEMM limit would allow.
        rows: In the order of the subjects.
        best_peer: Name of the fastest peer, None without one.
        over_best_peer: Cenote's texts/s over the best peer's, None without either.
    """

    workload: str
    description: str
    bound_texts_per_s: float
    rows: tuple[Row, ...]
    best_peer: str | None
    over_best_peer: float | None


def section(workload: Workload, timings: Mapping[str, Timing], dims: Dims, limit: GemmLimit) -> Section:
    """Compute a workload's figures from its timings."""
    num_texts = len(workload.texts)
    bound = num_texts * limit.gflops * 1e9 / workload_flops(dims, workload.num_tokens)
    rates = {name: num_texts / timing.median_s for name, timing in timings.items()}
    rows = tuple(_row(name, timings, rates, workload, bound) for name in timings)
    peers = [name for name in rates if not SUBJECTS[name].is_cenote]
    best = max(peers, key=lambda name: rates[name]) if peers else None
    over = rates["cenote"] / rates[best] if best and "cenote" in rates else None
    return Section(workload.name, workload.describe(), bound, rows, best, over)


def _row(name: str, timings: Mapping[str, Timing], rates: Mapping[str, float], workload: Workload, bound: float) -> Row:
    timing, reference = timings[name], timings.get(REFERENCE)
    return Row(
        subject=name,
        title=SUBJECTS[name].title,
        batch_size=timing.batch_size,
        seconds=timing.seconds,
        texts_per_s=rates[name],
        tokens_per_s=workload.total_tokens / timing.median_s,
        spread=timing.spread,
        cenote_ratio=rates["cenote"] / rates[name] if "cenote" in rates else None,
        least_cosine=least_cosines(timing.vectors, reference.vectors) if reference else None,
        gemm_fraction=rates[name] / bound,
        max_rss_bytes=timing.max_rss_bytes,
    )


COLUMNS = ("", "texts/s", "tokens/s", "spread", "Cenote is", "cosine", "of limit", "batch")


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, in the order of `COLUMNS`."""
    return (
        row.title,
        f"{row.texts_per_s:,.1f}",
        f"{row.tokens_per_s:,.0f}",
        f"{row.spread:.1%}",
        "-" if row.cenote_ratio is None else f"{row.cenote_ratio:.2f}x",
        "-" if row.least_cosine is None else f"{row.least_cosine:.7f}",
        f"{row.gemm_fraction:.0%}",
        str(row.batch_size) if row.batch_size else "own",
    )


def verdict(part: Section) -> str:
    """One line: the bound, and how Cenote stands to the best peer."""
    bound = f"The GEMM limit would allow {part.bound_texts_per_s:,.1f} texts/s."
    if part.best_peer is None or part.over_best_peer is None:
        return bound
    best = SUBJECTS[part.best_peer].title
    return f"Cenote gives {part.over_best_peer:.2f}x the texts/s of the best peer ({best}). {bound}"


QUIET = 0.05
"""Share of the machine that others may use before figures stop being worth quoting."""

LEGEND = (
    "ST: sentence-transformers. texts/s and tokens/s: of the median round; spread: (slowest - fastest) / median.\n"
    "Cenote is: its texts/s over this row's. cosine: the smallest over all texts, against ST torch.\n"
    "of limit: of what the GEMM limit would allow. batch: the fastest of the sizes tried."
)


def console() -> Console:
    """Standard output; wide enough for a table where it is a file or a pipe."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=120)


def print_busy(console: Console, busy: float) -> None:
    """Say how busy the machine was before the run, and what that means for the figures."""
    console.print(f"Other work used {busy:.0%} of the machine just before the run.", markup=False)
    if busy > QUIET:
        console.print(f"Above {QUIET:.0%} these figures are a check that it runs, not a measurement.", style="yellow")


def print_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is text and whose others are figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table in Markdown."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in (columns, rule, *rows)) + "\n"


def write_json(path: Path, sections: Sequence[Section], facts: Mapping[str, Any]) -> None:
    """Write all figures and the facts about machine, versions and threads."""
    path.write_text(json.dumps({**facts, "sections": [asdict(part) for part in sections]}, indent=2) + "\n")


def write_markdown(path: Path, sections: Sequence[Section]) -> None:
    """Write the tables as `docs/performance.md` shows them."""
    parts = [
        f"{part.description}.\n\n{markdown(COLUMNS, [cells(row) for row in part.rows])}\n{verdict(part)}\n"
        for part in sections
    ]
    path.write_text("\n".join(parts))


def write_png(path: Path, sections: Sequence[Section], caption: str) -> None:
    """Bars of texts/s, one panel per workload, with the bound of the GEMM limit as a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.2 + 2.6 * len(sections)), layout="constrained")
    FigureCanvasAgg(figure)
    for position, part in enumerate(sections):
        axes = figure.add_subplot(len(sections), 1, position + 1)
        rows = list(reversed(part.rows))
        colours = ["#0b6e99" if SUBJECTS[row.subject].is_cenote else "#b8c4cc" for row in rows]
        bars = axes.barh([row.title for row in rows], [row.texts_per_s for row in rows], color=colours)
        axes.bar_label(bars, [f"{row.texts_per_s:,.1f}" for row in rows], padding=4)
        axes.axvline(part.bound_texts_per_s, color="#c0392b", linestyle="--", linewidth=1, label="GEMM limit")
        axes.set_xlim(0, part.bound_texts_per_s * 1.12)
        axes.set_title(part.description, loc="left", fontsize=10)
        axes.set_xlabel("texts/s")
        axes.legend(loc="lower right", frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(caption, x=0.01, ha="left", fontsize=11)
    figure.savefig(path, dpi=130)
