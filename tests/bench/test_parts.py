"""What parts make of their figures, worked out by hand, and the files that they write."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from bench.client import Answered
from bench.linear import Point
from bench.memory import Held
from bench.parts import Aim, Panel, Part, Table, publish
from bench.serve import Load
from rich.console import Console

from bench import latency, linear, memory, serve

NOTHING = Part("mixed", [], [], [])


def met(part: Part) -> dict[str, tuple[float, bool]]:
    return {aim.what: (round(aim.value, 6), aim.is_met) for aim in part.aims}


@pytest.mark.parametrize(("value", "at_most", "is_met"), [(1.0, True, True), (1.01, True, False), (0.99, False, False)])
def test_an_aim_is_met_at_its_bound_and_not_beyond(value: float, at_most: bool, is_met: bool) -> None:
    assert Aim("it", value, 1.0, at_most).is_met is is_met


def test_a_part_is_written_three_ways_with_what_is_missing(tmp_path: Path) -> None:
    out = StringIO()
    lines = Panel("both", "texts", "seconds", {"one": [(1, 2.0), (10, 3.0)]})
    bars = Panel("bars", "ms", "", {"one": [(0, 2.0)], "two": [(0, 4.0)]})
    table = Table("A table", ("", "ms"), (("one", "2.0"),))
    part = Part("it", [table], [Aim("speed", 2.0, 1.5, unit=" ms")], [lines, bars], {"n": 3}, {"a peer": "no wheel"})
    publish(part, tmp_path, 0.0, Console(file=out, width=120))
    assert "NOT AVAILABLE HERE: a peer" in out.getvalue()
    text = (tmp_path / "it.md").read_text()
    assert "| one | 2.0 |" in text
    assert "| speed | 2 ms | at most 1.5 ms | no |" in text
    assert "Not available here: a peer. no wheel" in text
    found = json.loads((tmp_path / "it.json").read_text())
    assert (found["aims"][0]["value"], found["raw"], found["missing"]) == (2.0, {"n": 3}, {"a peer": "no wheel"})
    assert (tmp_path / "it.png").read_bytes()[:4] == b"\x89PNG"


def test_latency_is_compared_with_onnx_and_http_with_the_call() -> None:
    seconds = {"cenote": [0.005] * 9 + [0.1], "cenote-int8": [0.004], "st-onnx": [0.01], latency.HTTP: [0.0062]}
    part = latency.found(seconds, {"st-openvino": "no wheel"})
    assert met(part) == {
        "HTTP over offline, p50": (1.2, True),
        "Cenote, p50 / that of ST ONNX O3": (0.5, True),
        "Cenote, int8, p50 / that of ST ONNX O3": (0.4, True),
    }
    assert part.tables[0].rows[0] == ("Cenote", "5.00 ms", "100.00 ms", "5.00 ms", "0.50x")
    assert part.missing == {"ST OpenVINO": "no wheel"}


def test_without_onnx_latency_has_no_ratio() -> None:
    part = latency.found({"cenote": [0.005], latency.HTTP: [0.008]}, {})
    assert met(part) == {"HTTP over offline, p50": (3.0, False)}
    assert part.tables[0].rows[0][-1] == "-"


def load(texts_per_s: float, cpu_ms: float) -> Load:
    return Load(texts_per_s, cpu_ms, Answered(2.0, (0.1, 0.2), 0.5))


def test_a_server_is_compared_with_the_call_and_with_infinity() -> None:
    ours = {("Cenote", name): [load(400.0, 2.2), load(500.0, 2.4), load(300.0, 2.0)] for name in serve.LOADS}
    theirs = {("infinity", name): [load(100.0, 20.0)] for name in serve.LOADS}
    part = serve.found([load(500.0, 2.0)], ours | theirs, NOTHING, {})
    assert met(part) == {
        "CPU per text / that offline, 64 x 1": (1.1, True),
        "CPU per text / that offline, 16 x 32": (1.1, True),
        "texts/s / infinity's, 64 x 1": (4.0, True),
        "texts/s / infinity's, 16 x 32": (4.0, True),
    }
    assert part.tables[0].rows[1] == ("Cenote", "64 x 1", "400", "2.20", "200.0 ms", "200.0 ms", "25%")


def test_without_infinity_its_aims_are_left_out_and_its_reason_stays() -> None:
    ours = {("Cenote", name): [load(400.0, 2.4)] for name in serve.LOADS}
    part = serve.found([load(500.0, 2.0)], ours, NOTHING, {"infinity": "it ended with 1"})
    assert [aim.is_met for aim in part.aims] == [False, False]
    assert part.missing == {"infinity": "it ended with 1"}


def test_growth_is_that_of_a_line_after_the_first_fifth() -> None:
    assert memory.slope([0.0, 50.0, 100.0, 102.0, 104.0, 106.0, 108.0, 110.0, 112.0, 114.0]) == pytest.approx(2.0)
    assert memory.slope([5.0]) == 0.0


def test_memory_is_told_beside_the_weights() -> None:
    held = Held("BERT-base, float32", 400.0, 700.0, 800.0, 500.0)
    part = memory.found([held], [10.0] * 10, 1000)
    assert met(part) == {
        "BERT-base, float32: anonymous memory over the weights, ready": (300.0, True),
        "BERT-base, float32: anonymous memory over the weights, after a request": (400.0, False),
        "growth for 1,000 texts of random lengths": (0.0, True),
    }
    assert part.tables[0].rows[0] == ("BERT-base, float32", "400 MiB", "700 MiB", "800 MiB", "500 MiB", "+300 MiB")


def test_cost_is_told_per_token_and_memory_per_token_under_way() -> None:
    points = [
        Point("number", 1000, 10.0, 1.0, 10**9, 4.0, 2048),
        Point("number", 10_000, 10.0, 12.0, 10**10, 4.0, 2048),
        Point("length", 16, 1024.0, 1.0, 10**9, 100.0, 2048),
        Point("length", 2, 8192.0, 4.0, 10**10, 700.0, 16_384),
    ]
    part = linear.found(points)
    assert met(part) == {
        "time per token, 10,000 texts / 1,000": (1.2, False),
        "memory per token under way, texts of 8,192 tokens / of 1,024": (0.875, True),
    }
    assert part.tables[0].rows[0] == ("number", "1,000", "10.0", "1.00", "100.0", "1", "4 MiB", "2,048")
