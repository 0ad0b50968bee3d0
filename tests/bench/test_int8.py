"""What int8 is compared by, worked out by hand, and what ends its run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bench.errors import AnswersDiffer
from bench.exports import EXPORTERS
from bench.rounds import Timing
from bench.subjects import LOADERS, SUBJECTS, onnx_int8_kind
from bench.texts import Workload
from numpy.typing import NDArray

from bench import int8, peers

WORKLOAD = Workload("short", ("a", "b", "c"), (1, 1, 1))
AXES = np.eye(3, dtype=np.float32)


def timing(seconds: float, rows: NDArray[np.float32] = AXES) -> Timing:
    return Timing((seconds,), None, rows, 0)


def at(*degrees: float) -> NDArray[np.float32]:
    """Vectors of the plane at so many degrees, each of another length."""
    turns = np.radians(degrees)
    lengths = 1 + np.arange(len(degrees))
    return (np.stack([np.cos(turns), np.sin(turns)], 1) * lengths[:, None]).astype(np.float32)


def test_nearness_is_told_by_mean_least_and_neighbours() -> None:
    near = int8.nearness(at(0, 10, 60), at(0, 70, 60))
    assert near.mean_cosine == pytest.approx((1 + 0.5 + 1) / 3)
    assert near.least_cosine == pytest.approx(0.5)
    assert near.neighbours == 1.0  # of three texts, all others are among the ten nearest


def test_neighbours_are_the_ten_nearest_without_the_text_itself() -> None:
    straight = [float(i) for i in range(12)]
    swapped = [*straight[:10], straight[11], straight[10]]
    # Of the 11 others one is left out, the farthest: texts 0-5 have lost 11 and gained 10 or the reverse; the rest,
    # for which the farthest is text 0, have lost none.
    assert int8.nearness(at(*swapped), at(*straight)).neighbours == pytest.approx(1 - 6 / 120)


def test_int8_is_compared_with_float32_and_with_the_best_peer() -> None:
    timings = {
        "cenote": timing(2.0),
        "cenote-int8": timing(1.0),
        "st-torch": timing(4.0),
        "st-onnx-int8": timing(3.0),
        "st-openvino-int8": timing(0.8),
    }
    part = int8.found([(WORKLOAD, int8.figures(WORKLOAD, timings))], {}, {})
    assert [(aim.what, aim.value, aim.is_met) for aim in part.aims] == [
        ("short: Cenote, int8 / best int8 of peers (ST OpenVINO int8)", 0.8, False),
        ("short: Cenote, int8 / float32", 2.0, True),
        ("short: mean cosine of Cenote, int8", 1.0, True),
    ]
    assert part.tables[0].rows[0] == ("Cenote", "1.5", "0.0%", "2.00x", "1.0000", "1.0000", "100.0%", "own")


def test_without_a_reference_and_peers_only_float32_is_left() -> None:
    rows = int8.figures(WORKLOAD, {"cenote": timing(2.0), "cenote-int8": timing(1.0)})
    part = int8.found([(WORKLOAD, rows)], {}, {"st-torch": "no wheel"})
    assert [aim.what for aim in part.aims] == ["short: Cenote, int8 / float32"]
    assert part.tables[0].rows[0][4:7] == ("-", "-", "-")
    assert part.missing == {"ST torch": "no wheel"}


def test_only_a_far_cenote_ends_the_run() -> None:
    # A turn by 5.7 degrees has a cosine of 0.99506, one by 5.8 a cosine of 0.99488.
    near, far, reference = at(5.7, 5.7), at(5.8, 5.8), at(0, 0)
    timings = {"cenote-int8": timing(1.0, near), "st-torch": timing(1.0, reference), "st-onnx-int8": timing(1.0, far)}
    int8.check_agreement([(WORKLOAD, int8.figures(WORKLOAD, timings))])
    timings["cenote-int8"] = timing(1.0, far)
    with pytest.raises(AnswersDiffer, match=r"short: Cenote, int8 has a mean cosine of 0\.9949"):
        int8.check_agreement([(WORKLOAD, int8.figures(WORKLOAD, timings))])


@pytest.mark.parametrize(
    ("flags", "kind"), [("flags : avx2 avx512_vnni", "qint8_avx512_vnni"), ("flags : avx2 avx_vnni", "quint8_avx2")]
)
def test_the_8_bit_onnx_model_is_that_of_the_cpu(flags: str, kind: str) -> None:
    assert onnx_int8_kind(flags) == kind


def test_all_that_take_part_can_be_exported_and_loaded() -> None:
    for name in int8.SUBJECTS_TIMED:
        assert ("embed", name) in LOADERS
        assert not SUBJECTS[name].in_peers or name.removeprefix("st-") in EXPORTERS


def test_what_runs_in_the_peers_environment_needs_nothing_of_ours(tmp_path: Path) -> None:
    code = (
        "import sys, bench.worker, bench.exports\nprint([m for m in sys.modules if m in ('cenote', 'rich', 'click')])"
    )
    command, env = [sys.executable, "-c", code], peers.environment(in_peers=True)
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
