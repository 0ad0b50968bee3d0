"""What a part of the benchmark found, other than a race: tables, curves and aims, to every kind of file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from . import machine, report


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the first column holds titles.

    Args:
        title: What it shows.
        columns: Headings.
        rows: As many cells each.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Aim:
    """One figure that is to stay within a bound.

    Args:
        what: Of what, in words.
        value: As measured.
        bound: Where it may lie.
        at_most: Whether the bound is the most; else it is the least.
        unit: Behind both, with its space.
    """

    what: str
    value: float
    bound: float
    at_most: bool = True
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def cells(self) -> tuple[str, str, str, str]:
        """The row of its table."""
        sign = "at most" if self.at_most else "at least"
        met = "yes" if self.is_met else "no"
        return self.what, f"{self.value:.3g}{self.unit}", f"{sign} {self.bound:g}{self.unit}", met


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: curves over logarithmic axes, or bars where every line has one point.

    Args:
        title: What it shows.
        x, y: Labels of the axes.
        lines: Name -> points `(x, y)`.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Part:
    """All that one part found.

    Args:
        name: Of its files.
        tables, aims, panels: In the order in which they are shown.
        raw: Whatever was measured, for the JSON alone.
        missing: What was not available -> why.
    """

    name: str
    tables: Sequence[Table]
    aims: Sequence[Aim]
    panels: Sequence[Panel]
    raw: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


AIM_COLUMNS = ("aim", "measured", "bound", "met")


def publish(part: Part, output: Path, busy: float, console: Console) -> None:
    """Print it, and write NAME.json, NAME.md and NAME.png into `output`.

    Args:
        busy: Share of the machine that others used just before.
    """
    output.mkdir(parents=True, exist_ok=True)
    tables = [*part.tables, Table("Aims", AIM_COLUMNS, tuple(aim.cells() for aim in part.aims))]
    tables = [table for table in tables if table.rows]
    for table in tables:
        report.print_table(console, table.title, table.columns, table.rows)
    for what, why in part.missing.items():
        console.print(f"NOT AVAILABLE HERE: {what}\n{why}", style="bold red", markup=False)
    report.print_busy(console, busy)
    stem = output / part.name
    facts = {**machine.facts(), "busy_before": busy, **asdict(part)}
    stem.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    texts = [f"{table.title}.\n\n{report.markdown(table.columns, table.rows)}" for table in tables]
    texts += [f"Not available here: {what}. {why}\n" for what, why in part.missing.items()]
    stem.with_suffix(".md").write_text("\n".join(texts), encoding="utf-8")
    _draw(part, stem.with_suffix(".png"))
    for suffix in (".json", ".md", ".png"):
        console.print(f"wrote {stem.with_suffix(suffix)}", markup=False, soft_wrap=True)


def _draw(part: Part, path: Path) -> None:
    figure = report.new_figure(len(part.panels))
    for number, panel in enumerate(part.panels, 1):
        axes = figure.add_subplot(len(part.panels), 1, number)
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.set_xlabel(panel.x)
        if all(len(points) == 1 for points in panel.lines.values()):
            names = list(panel.lines)[::-1]
            bars = axes.barh(names, [panel.lines[name][0][1] for name in names], color="#0b6e99")
            axes.bar_label(bars, [f"{panel.lines[name][0][1]:.3g}" for name in names], padding=4)
            axes.margins(x=0.12)
        else:
            axes.set_ylabel(panel.y)
            for name, points in panel.lines.items():
                axes.plot(*zip(*points, strict=True), marker="o", label=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
