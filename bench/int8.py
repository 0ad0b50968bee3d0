"""Cenote's int8 beside its float32 and the peers' int8: how fast each is, and how near to float32 its vectors stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from . import machine, peers, rounds
from .compare import Contest, LineUp, Plan, progress
from .errors import AnswersDiffer
from .parts import Aim, Panel, Part, Table, publish
from .subjects import REFERENCE, SUBJECTS
from .texts import Workload, build, token_counter

OURS, FLOAT32 = "cenote-int8", "cenote"
PEERS = ("st-onnx-int8", "st-openvino-int8")
SUBJECTS_TIMED = (FLOAT32, OURS, REFERENCE, *PEERS)
COLUMNS = ("", "texts/s", "spread", "int8 is", "mean cosine", "least cosine", "neighbours", "batch")
NUM_NEIGHBOURS = 10
LEAST_MEAN_COSINE = 0.995
"""How near to float32 Cenote's int8 must be, on average over a workload, before its speed means anything."""
_OVER_PEERS = {"short": 2.2, "paragraphs": 1.6}
"""Workload -> how many times the texts/s of the best int8 of peers Cenote's should give."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near vectors are to other vectors of the same texts.

    Args:
        mean_cosine, least_cosine: Between both vectors of a text, over all texts.
        neighbours: Share of the ten texts nearest to each text, by cosine, that both have among them.
    """

    mean_cosine: float
    least_cosine: float
    neighbours: float


@dataclass(frozen=True, slots=True)
class Row:
    """One subject on one workload.

    Args:
        seconds: Of each round.
        texts_per_s: From the median round.
        spread: (slowest - fastest) / median.
        batch_size: Texts per batch, None where the library chooses.
        near: To float32 by sentence-transformers on torch; None without that.
    """

    seconds: tuple[float, ...]
    texts_per_s: float
    spread: float
    batch_size: int | None
    near: Nearness | None


Rows = Mapping[str, Row]
"""Name of a subject -> its figures."""


def run(plan: Plan, sizes: Mapping[str, int], console: Console) -> Part:
    """Take turns on each workload, print, and write the results.

    Args:
        sizes: Workload -> number of texts.

    Raises:
        PeerUnavailable, WorkerFailed: A subject is missing and the plan does not allow that.
        AnswersDiffer: Cenote's int8 is too far from float32.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    count = token_counter(peers.default_model())
    workloads = [build(name, size, count) for name, size in sizes.items()]
    contest = Contest("int8", peers.build_model("embed", console.print), workloads, SUBJECTS_TIMED)
    line_up = LineUp(plan, contest, console)
    line_up.build()
    machine.pin(plan.threads)
    busy = machine.busy_fraction()
    measured = []
    with ExitStack() as stack:
        workers = line_up.start(stack)
        num_steps = sum(rounds.num_steps(workers, workload, plan.num_rounds) for workload in workloads)
        advance = stack.enter_context(progress(num_steps, console))
        for workload in workloads:
            timings = rounds.run_rounds(workers, workload, plan.num_rounds, plan.output, advance)
            measured.append((workload, figures(workload, timings)))
    part = found(measured, line_up.loads, line_up.missing)
    publish(part, plan.output, busy, console)
    check_agreement(measured)
    return part


def figures(workload: Workload, timings: Mapping[str, rounds.Timing]) -> dict[str, Row]:
    """Compute a workload's figures from its timings."""
    reference = timings.get(REFERENCE)
    return {
        name: Row(
            timing.seconds,
            len(workload.texts) / timing.median_s,
            timing.spread,
            timing.batch_size,
            nearness(timing.rows, reference.rows) if reference else None,
        )
        for name, timing in timings.items()
    }


def nearness(rows_ND: NDArray[np.float32], reference_ND: NDArray[np.float32]) -> Nearness:
    """Compare vectors of the same texts, two or more, in float64."""
    a, b = _unit(rows_ND), _unit(reference_ND)
    cosines = (a * b).sum(1)
    pairs = list(zip(_nearest(a), _nearest(b), strict=True))
    kept = sum(len(ours & theirs) for ours, theirs in pairs) / sum(len(theirs) for _, theirs in pairs)
    return Nearness(float(cosines.mean()), float(cosines.min()), kept)


def found(measured: Sequence[tuple[Workload, Rows]], loads: Mapping[str, Any], missing: Mapping[str, str]) -> Part:
    """What the rounds amount to.

    Args:
        measured: Each workload with the figures of its subjects.
        loads: Name -> what its worker said when it had loaded.
        missing: Name -> why it is not there.
    """
    tables, aims, panels = [], [], []
    for workload, rows in measured:
        title = workload.describe()
        tables.append(Table(title, COLUMNS, tuple(_cells(name, rows) for name in rows)))
        aims += _aims(workload.name, rows)
        panels.append(
            Panel(title, "texts/s", "", {SUBJECTS[name].title: [(0, row.texts_per_s)] for name, row in rows.items()})
        )
    raw = {workload.name: {name: asdict(row) for name, row in rows.items()} for workload, rows in measured}
    named = {SUBJECTS[name].title: why for name, why in missing.items()}
    return Part("int8", tables, aims, panels, {"rows": raw, "loads": loads}, named)


def check_agreement(measured: Sequence[tuple[Workload, Rows]]) -> None:
    """Compare Cenote's int8 with float32; peers that differ are shown, not refused.

    Raises:
        AnswersDiffer: They are further apart than rounding to 8 bits explains.
    """
    for workload, rows in measured:
        near = rows[OURS].near if OURS in rows else None
        if near and near.mean_cosine < LEAST_MEAN_COSINE:
            raise AnswersDiffer(
                f"{workload.name}: {SUBJECTS[OURS].title} has a mean cosine of {near.mean_cosine:.4f} to "
                f"{SUBJECTS[REFERENCE].title}. Allowed is {LEAST_MEAN_COSINE} or more; do not quote its speed."
            )


def _cells(name: str, rows: Rows) -> tuple[str, ...]:
    row, near, ours = rows[name], rows[name].near, rows.get(OURS)
    return (
        SUBJECTS[name].title,
        f"{row.texts_per_s:,.1f}",
        f"{row.spread:.1%}",
        f"{ours.texts_per_s / row.texts_per_s:.2f}x" if ours else "-",
        f"{near.mean_cosine:.4f}" if near else "-",
        f"{near.least_cosine:.4f}" if near else "-",
        f"{near.neighbours:.1%}" if near else "-",
        str(row.batch_size) if row.batch_size else "own",
    )


def _aims(workload: str, rows: Rows) -> list[Aim]:
    """That int8 is worth its rounding: faster than float32 and than the peers' int8, and near enough."""
    ours, present = rows.get(OURS), [name for name in PEERS if name in rows]
    if ours is None:
        return []
    aims = []
    if present:
        best = max(present, key=lambda name: rows[name].texts_per_s)
        what = f"{workload}: Cenote, int8 / best int8 of peers ({SUBJECTS[best].title})"
        aims.append(Aim(what, ours.texts_per_s / rows[best].texts_per_s, _OVER_PEERS[workload], at_most=False))
    if FLOAT32 in rows:
        what = f"{workload}: Cenote, int8 / float32"
        aims.append(Aim(what, ours.texts_per_s / rows[FLOAT32].texts_per_s, 1.0, at_most=False))
    if ours.near:
        what = f"{workload}: mean cosine of Cenote, int8"
        aims.append(Aim(what, ours.near.mean_cosine, LEAST_MEAN_COSINE, at_most=False, unit=""))
    return aims


def _unit(rows_ND: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = rows_ND.astype(np.float64)
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _nearest(unit_ND: NDArray[np.float64]) -> list[set[int]]:
    cosines_NN = unit_ND @ unit_ND.T
    np.fill_diagonal(cosines_NN, -np.inf)
    order = np.argsort(-cosines_NN, axis=1, kind="stable")[:, : min(NUM_NEIGHBOURS, len(unit_ND) - 1)]
    return [set(row) for row in order.tolist()]
