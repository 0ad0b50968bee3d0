"""Results as records, tables (terminal and Markdown), JSON and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .errors import AnswersDiffer
from .flops import Dims, workload_flops
from .gemm import GemmLimit
from .rounds import Timing, greatest_difference, least_cosines
from .subjects import REFERENCE, SUBJECTS, Task
from .texts import Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Row:
    """One subject on one workload.

    Args:
        subject: Its name.
        title: What tables call it.
        batch_size: Texts per batch, None where the library chooses.
        seconds: Of each round.
        texts_per_s: From the median round; a pair of the query with a document counts as one text.
        tokens_per_s: From the median round; tokens of the texts or pairs, padding not counted.
        spread: (slowest - fastest) / median.
        cenote_ratio: Cenote's texts/s over this subject's; None without Cenote.
        least_cosine: Of vectors, the smallest cosine against sentence-transformers on torch; None without it.
        greatest_difference: Of scores, the greatest absolute difference from the same; None without it.
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
    greatest_difference: float | None
    gemm_fraction: float
    max_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Section:
    """All subjects on one workload.

    Args:
        workload: Its name.
        task: What the subjects were asked for.
        description: Number of texts and lengths in tokens.
        bound_texts_per_s: What the GEMM limit would allow.
        rows: In the order of the subjects.
        best_peer: Name of the fastest peer, None without one.
        over_best_peer: Cenote's texts/s over the best peer's, None without either.
    """

    workload: str
    task: Task
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
    return Section(workload.name, workload.task, workload.describe(), bound, rows, best, over)


def _row(name: str, timings: Mapping[str, Timing], rates: Mapping[str, float], workload: Workload, bound: float) -> Row:
    timing, reference = timings[name], timings.get(REFERENCE)
    ranks = workload.task == "rerank"
    return Row(
        subject=name,
        title=SUBJECTS[name].title,
        batch_size=timing.batch_size,
        seconds=timing.seconds,
        texts_per_s=rates[name],
        tokens_per_s=workload.total_tokens / timing.median_s,
        spread=timing.spread,
        cenote_ratio=rates["cenote"] / rates[name] if "cenote" in rates else None,
        least_cosine=least_cosines(timing.rows, reference.rows) if reference and not ranks else None,
        greatest_difference=greatest_difference(timing.rows, reference.rows) if reference and ranks else None,
        gemm_fraction=rates[name] / bound,
        max_rss_bytes=timing.max_rss_bytes,
    )


UNITS: dict[Task, str] = {"embed": "texts", "rerank": "pairs"}
AGREEMENT: dict[Task, str] = {"embed": "cosine", "rerank": "difference"}


def columns(part: Section) -> tuple[str, ...]:
    """Headings of the section's table; the first column holds titles."""
    return "", f"{UNITS[part.task]}/s", "tokens/s", "spread", "Cenote is", AGREEMENT[part.task], "of limit", "batch"


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, in the order of `columns`."""
    return (
        row.title,
        f"{row.texts_per_s:,.1f}",
        f"{row.tokens_per_s:,.0f}",
        f"{row.spread:.1%}",
        "-" if row.cenote_ratio is None else f"{row.cenote_ratio:.2f}x",
        _agreement(row),
        f"{row.gemm_fraction:.0%}",
        str(row.batch_size) if row.batch_size else "own",
    )


def _agreement(row: Row) -> str:
    if row.greatest_difference is not None:
        return f"{row.greatest_difference:.1e}"
    return "-" if row.least_cosine is None else f"{row.least_cosine:.7f}"


def verdict(part: Section) -> str:
    """One line: the bound, and how Cenote stands to the best peer."""
    unit = UNITS[part.task]
    bound = f"The GEMM limit would allow {part.bound_texts_per_s:,.1f} {unit}/s."
    if part.best_peer is None or part.over_best_peer is None:
        return bound
    best = SUBJECTS[part.best_peer].title
    return f"Cenote gives {part.over_best_peer:.2f}x the {unit}/s of the best peer ({best}). {bound}"


LEAST_COSINE = 0.99999
GREATEST_DIFFERENCE = 1e-5
"""How far Cenote may be from the reference before its speed means nothing."""


def check_agreement(sections: Sequence[Section]) -> None:
    """Compare Cenote's answers with the reference's; peers that differ are shown, not refused.

    Raises:
        AnswersDiffer: They are further apart than float32 rounding explains.
    """
    for part in sections:
        for row in part.rows:
            near = row.least_cosine is None or row.least_cosine >= LEAST_COSINE
            near = near and (row.greatest_difference is None or row.greatest_difference <= GREATEST_DIFFERENCE)
            if SUBJECTS[row.subject].is_cenote and not near:
                raise AnswersDiffer(
                    f"{part.workload}: {row.title} differs from {SUBJECTS[REFERENCE].title} ({AGREEMENT[part.task]} "
                    f"{_agreement(row)}). Allowed are a cosine of {LEAST_COSINE} and a difference of "
                    f"{GREATEST_DIFFERENCE}; do not quote its speed."
                )


QUIET = 0.05
"""Share of the machine that others may use before figures stop being worth quoting."""

LEGEND = (
    "ST: sentence-transformers. Rates are of the median round; spread: (slowest - fastest) / median.\n"
    "Cenote is: its rate over this row's. cosine: the smallest over all texts, against ST torch.\n"
    "difference: the greatest over all scores, which lie between 0 and 1, against ST torch.\n"
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
        f"{part.description}.\n\n{markdown(columns(part), [cells(row) for row in part.rows])}\n{verdict(part)}\n"
        for part in sections
    ]
    path.write_text("\n".join(parts))


def new_figure(num_panels: int) -> Figure:
    """An empty picture with room for so many panels, one below the other; it needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.2 + 2.6 * num_panels), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_png(path: Path, sections: Sequence[Section], caption: str) -> None:
    """Bars of texts/s or pairs/s, one panel per workload, with the bound of the GEMM limit as a line."""
    figure = new_figure(len(sections))
    for position, part in enumerate(sections):
        axes = figure.add_subplot(len(sections), 1, position + 1)
        rows = list(reversed(part.rows))
        colours = ["#0b6e99" if SUBJECTS[row.subject].is_cenote else "#b8c4cc" for row in rows]
        bars = axes.barh([row.title for row in rows], [row.texts_per_s for row in rows], color=colours)
        axes.bar_label(bars, [f"{row.texts_per_s:,.1f}" for row in rows], padding=4)
        axes.axvline(part.bound_texts_per_s, color="#c0392b", linestyle="--", linewidth=1, label="GEMM limit")
        axes.set_xlim(0, part.bound_texts_per_s * 1.12)
        axes.set_title(part.description, loc="left", fontsize=10)
        axes.set_xlabel(f"{UNITS[part.task]}/s")
        axes.legend(loc="lower right", frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(caption, x=0.01, ha="left", fontsize=11)
    figure.savefig(path, dpi=130)
