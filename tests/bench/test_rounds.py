"""Order, medians and cosines of the rounds, with workers that only keep a diary."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from bench.driver import WorkerProcess
from bench.rounds import Timing, greatest_difference, least_cosines, num_steps, rotated, run_rounds, sizes_tried
from bench.subjects import SUBJECTS
from bench.texts import Workload

WORKLOAD = Workload("short", ("a", "b") * 20, (1, 1) * 20)


class Diarist:
    """Answers like a worker; every run takes as many seconds as its batch size, or 2."""

    def __init__(self, name: str, diary: list[tuple[str, int | None]]) -> None:
        self.subject = SUBJECTS[name]
        self.diary = diary

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        if op == "save":
            np.save(arguments["path"], np.eye(2, dtype=np.float32))
        if op != "run":
            return {}
        self.diary.append((self.subject.name, arguments["batch_size"]))
        return {"seconds": float(arguments["batch_size"] or 2), "max_rss_bytes": 7}


def test_rounds_rotate_and_use_the_fastest_batch_size(tmp_path: Path) -> None:
    diary: list[tuple[str, int | None]] = []
    workers = cast(list[WorkerProcess], [Diarist("cenote", diary), Diarist("st-torch", diary)])
    steps: list[str] = []
    timings = run_rounds(workers, WORKLOAD, 3, tmp_path, steps.append)
    # A batch of 32 does not take all 40 texts, one of 128 does.
    warm_up = [("cenote", None), ("st-torch", 128), ("st-torch", 8), ("st-torch", 32), ("st-torch", 128)]
    cenote, torch = ("cenote", None), ("st-torch", 8)
    assert diary == [*warm_up, cenote, torch, torch, cenote, cenote, torch]
    assert timings["st-torch"].batch_size == 8
    assert timings["cenote"].seconds == (2.0, 2.0, 2.0)
    assert len(steps) == num_steps(workers, WORKLOAD, 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("num_texts", "tried"), [(4, (8,)), (8, (8,)), (9, (8, 32)), (129, (8, 32, 128))])
def test_batch_sizes_that_would_all_take_everything_are_not_tried(num_texts: int, tried: tuple[int, ...]) -> None:
    worker = cast(WorkerProcess, Diarist("st-torch", []))
    assert sizes_tried(worker, Workload("short", ("a",) * num_texts, (1,) * num_texts)) == tried


def test_rotation() -> None:
    assert [rotated("abc", turn) for turn in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_median_and_spread() -> None:
    timing = Timing((3.0, 1.0, 2.0), None, np.zeros((1, 1), np.float32), 0)
    assert timing.median_s == 2.0
    assert timing.spread == 1.0


def test_least_cosine_is_the_worst_row() -> None:
    rows = np.array([[1, 0], [1, 1]], np.float32)
    reference = np.array([[2, 0], [0, 3]], np.float32)
    assert least_cosines(rows, reference) == pytest.approx(0.5**0.5)


def test_greatest_difference_is_the_worst_pair() -> None:
    scores, reference = np.array([0.5, 0.25, 1], np.float32), np.array([0.5, 0.5, 0.875], np.float32)
    assert greatest_difference(scores, reference) == 0.25
