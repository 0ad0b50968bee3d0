"""Interleaved rounds: one subject works at a time, in an order that rotates, so that drift hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .driver import WorkerProcess
from .texts import Workload

T = TypeVar("T")

_REST_S = 0.5
"""Before each turn, so that threads of the one before, which wait for more in a busy loop, have gone to sleep."""
Advance = Callable[[str], None]
"""Told before each step what it is."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one subject did on one workload.

    Args:
        seconds: One entry per round.
        batch_size: The batch size that was fastest before the rounds, None where the library chooses.
        rows: Of the last round, float32: vectors `[N, D]`, or scores `[N]`.
        max_rss_bytes: The process's peak so far.
    """

    seconds: tuple[float, ...]
    batch_size: int | None
    rows: NDArray[np.float32]
    max_rss_bytes: int

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """`items` from position `turn` on, and then those before it."""
    start = turn % len(items)
    return [*items[start:], *items[:start]]


def least_cosines(rows_ND: NDArray[np.float32], reference_ND: NDArray[np.float32]) -> float:
    """The smallest cosine between rows of the same text, in float64."""
    a, b = rows_ND.astype(np.float64), reference_ND.astype(np.float64)
    dots = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(dots.min())


def greatest_difference(scores_N: NDArray[np.float32], reference_N: NDArray[np.float32]) -> float:
    """The greatest absolute difference between scores of the same pair, in float64."""
    return float(np.abs(scores_N.astype(np.float64) - reference_N.astype(np.float64)).max())


def num_steps(workers: Sequence[WorkerProcess], workload: Workload, num_rounds: int) -> int:
    """How often `run_rounds` calls `advance`."""
    return sum(1 + len(sizes_tried(w, workload)) + num_rounds for w in workers)


def sizes_tried(worker: WorkerProcess, workload: Workload) -> tuple[int, ...]:
    """The subject's batch sizes up to the first that takes all texts at once; beyond it all are the same."""
    sizes = worker.subject.batch_sizes
    whole = [size for size in sizes if size >= len(workload.texts)]
    return tuple(size for size in sizes if size < len(workload.texts)) + tuple(whole[:1])


def run_rounds(
    workers: Sequence[WorkerProcess], workload: Workload, num_rounds: int, folder: Path, advance: Advance
) -> dict[str, Timing]:
    """Warm up, choose batch sizes, run the rounds, and fetch what the last one gave."""
    batch_sizes = {w.subject.name: _warm_up(w, workload, advance) for w in workers}
    seconds: dict[str, list[float]] = {w.subject.name: [] for w in workers}
    peaks: dict[str, int] = {}
    for turn in range(num_rounds):
        for worker in rotated(workers, turn):
            name = worker.subject.name
            advance(f"{workload.name}, round {turn + 1}: {worker.subject.title}")
            time.sleep(_REST_S)
            answer = worker.ask("run", batch_size=batch_sizes[name])
            seconds[name].append(answer["seconds"])
            peaks[name] = answer["max_rss_bytes"]
    rows = _fetch(workers, workload, folder)
    return {n: Timing(tuple(seconds[n]), batch_sizes[n], rows[n], peaks[n]) for n in seconds}


def _warm_up(worker: WorkerProcess, workload: Workload, advance: Advance) -> int | None:
    """Run all texts once unmeasured, then once per batch size; answer the fastest."""
    worker.ask("texts", texts=list(workload.texts), query=workload.query)
    sizes = sizes_tried(worker, workload)
    advance(f"{workload.name}, warm-up: {worker.subject.title}")
    worker.ask("run", batch_size=sizes[-1] if sizes else None)
    tried: dict[int, float] = {}
    for size in sizes:
        advance(f"{workload.name}, batches of {size}: {worker.subject.title}")
        tried[size] = worker.ask("run", batch_size=size)["seconds"]
    return min(tried, key=lambda size: tried[size]) if tried else None


def _fetch(workers: Sequence[WorkerProcess], workload: Workload, folder: Path) -> Mapping[str, NDArray[np.float32]]:
    rows = {}
    for worker in workers:
        path = folder / f"{workload.name}-{worker.subject.name}.npy"
        worker.ask("save", path=str(path))
        rows[worker.subject.name] = np.load(path)
        path.unlink()
    return rows
