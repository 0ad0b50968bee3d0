"""Pictures of runs: one over time, several as throughput against latency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingExtra
from .summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = {"p50": "#0b6e99", "p95": "#d08a1d", "p99": "#c0392b"}


def check_can_draw() -> None:
    """Raise `MissingExtra` where matplotlib is missing; asked before a run, not after it."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(f"--plot needs {error.name}.", fix="Run `pip install 'cenote[plot]'`.") from error


def draw(path: Path, runs: Sequence[Summary], caption: str) -> None:
    """Write a PNG; of runs without any answer nothing is drawn.

    Raises:
        OSError: `path` cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    if len(runs) == 1:
        _over_time(figure, runs[0])
    else:
        _against_each_other(figure, [run for run in runs if run.answered])
    figure.suptitle(caption, x=0.01, ha="left", fontsize=10)
    figure.savefig(path, dpi=130, format="png")


def _over_time(figure: Figure, run: Summary) -> None:
    latency, rate = figure.subplots(2, 1, sharex=True)
    for name, colour in _SHOWN.items():
        windows = [window for window in run.windows if window.latency_ms]
        times = [(window.start_s + window.end_s) / 2 for window in windows]
        latency.plot(times, [window.latency_ms[name] for window in windows], color=colour, marker=".", label=name)
    latency.set_ylabel("latency, ms")
    latency.set_ylim(bottom=0)
    latency.legend(frameon=False)
    edges = [window.start_s for window in run.windows] + [window.end_s for window in run.windows[-1:]]
    if edges:
        rate.stairs([window.requests_per_s for window in run.windows], edges, color="#0b6e99")
    rate.set_ylabel("requests/s")
    rate.set_ylim(bottom=0)
    rate.set_xlabel("seconds")
    for axes in (latency, rate):
        axes.spines[["top", "right"]].set_visible(False)


def _against_each_other(figure: Figure, runs: Sequence[Summary]) -> None:
    axes = figure.subplots()
    rates = [run.texts_per_s for run in runs]
    for name, colour in _SHOWN.items():
        axes.plot(rates, [run.latency_ms[name] for run in runs], color=colour, marker="o", label=name)
    for run in runs:
        axes.annotate(
            run.load, (run.texts_per_s, run.latency_ms["p50"]), textcoords="offset points", xytext=(4, -12), fontsize=8
        )
    axes.set_xlabel("texts/s")
    axes.set_ylabel("latency, ms")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
