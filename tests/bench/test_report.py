"""The figures of a section by hand, and each of its renderings."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from bench.errors import AnswersDiffer
from bench.flops import Dims, workload_flops
from bench.gemm import GemmLimit
from bench.rounds import Timing
from bench.texts import Workload
from rich.console import Console

from bench import report

DIMS = Dims(1, 2, 3)
WORKLOAD = Workload("short", ("a b c", "d e f"), (3, 3))


@pytest.fixture
def part() -> report.Section:
    """Two texts: Cenote in 1 s, torch in 4 s, ONNX in 2 s; the limit allows 4 texts/s."""
    flops = workload_flops(DIMS, WORKLOAD.num_tokens)
    limit = GemmLimit(gflops=2 * flops / 1e9, where="torch linear", rates={})
    vectors = np.eye(2, dtype=np.float32)
    timings = {
        "cenote": Timing((1.0, 1.0, 1.5), None, vectors, 2**20),
        "st-torch": Timing((4.0,), 32, vectors, 2**21),
        "st-onnx": Timing((2.0,), 8, vectors, 2**22),
    }
    return report.section(WORKLOAD, timings, DIMS, limit)


def test_figures(part: report.Section) -> None:
    cenote, torch, onnx = part.rows
    assert part.bound_texts_per_s == pytest.approx(4.0)
    assert (cenote.texts_per_s, cenote.tokens_per_s, cenote.spread) == (2.0, 6.0, 0.5)
    assert (torch.cenote_ratio, onnx.cenote_ratio) == (4.0, 2.0)
    assert cenote.gemm_fraction == pytest.approx(0.5)
    assert cenote.least_cosine == pytest.approx(1.0)
    assert (part.best_peer, part.over_best_peer) == ("st-onnx", 2.0)


def test_without_cenote_there_are_no_ratios() -> None:
    timings = {"st-onnx": Timing((2.0,), 8, np.eye(2, dtype=np.float32), 0)}
    (row,) = (part := report.section(WORKLOAD, timings, DIMS, GemmLimit(1.0, "", {}))).rows
    assert (row.cenote_ratio, row.least_cosine, part.over_best_peer) == (None, None, None)
    assert report.cells(row)[4:6] == ("-", "-")


def test_table_names_every_subject(part: report.Section) -> None:
    out = StringIO()
    rows = [report.cells(row) for row in part.rows]
    report.print_table(Console(file=out, width=120), part.description, report.columns(part), rows)
    text = out.getvalue()
    assert "short: 2 texts, 3.0 tokens on average (3-3)" in text
    assert all(cell in text for row in rows for cell in row)


def test_markdown_has_as_many_cells_in_every_line() -> None:
    text = report.markdown(("", "texts/s"), [("Cenote", "2.0"), ("ST torch", "0.5")])
    assert text == "|  | texts/s |\n| --- | ---: |\n| Cenote | 2.0 |\n| ST torch | 0.5 |\n"


def test_verdict(part: report.Section) -> None:
    assert report.verdict(part) == (
        "Cenote gives 2.00x the texts/s of the best peer (ST ONNX O3). The GEMM limit would allow 4.0 texts/s."
    )


@pytest.fixture
def ranked() -> report.Section:
    """Two pairs; Cenote's second score is off by 2**-20, ONNX's by a quarter."""
    workload = Workload("rerank", ("a b", "d e"), (6, 6), "q")
    timings = {
        name: Timing((1.0,), None, np.array([0.5, score], np.float32), 0)
        for name, score in (("cenote", 0.5 + 2**-20), ("st-torch", 0.5), ("st-onnx", 0.25))
    }
    return report.section(workload, timings, DIMS, GemmLimit(1.0, "", {}))


def test_scores_are_compared_by_difference(ranked: report.Section, tmp_path: Path) -> None:
    assert [row.greatest_difference for row in ranked.rows] == [2**-20, 0.0, 0.25]
    assert {row.least_cosine for row in ranked.rows} == {None}
    report.write_markdown(tmp_path / "a.md", [ranked])
    text = (tmp_path / "a.md").read_text()
    assert "rerank: 1 query x 2 documents, 6.0 tokens per pair" in text
    assert "|  | pairs/s | tokens/s | spread | Cenote is | difference | of limit | batch |" in text
    assert "| ST ONNX O3 | 2.0 | 12 | 0.0% | 1.00x | 2.5e-01 |" in text
    assert "Cenote gives 1.00x the pairs/s of the best peer" in text


def test_only_a_wrong_cenote_ends_the_run(part: report.Section, ranked: report.Section) -> None:
    report.check_agreement([part, ranked])
    cenote, *others = ranked.rows
    wrong = replace(ranked, rows=(replace(cenote, greatest_difference=2e-5), *others))
    with pytest.raises(AnswersDiffer, match=r"rerank: Cenote differs from ST torch \(difference 2\.0e-05\)"):
        report.check_agreement([part, wrong])
    turned = replace(part, rows=(replace(part.rows[0], least_cosine=0.9), *part.rows[1:]))
    with pytest.raises(AnswersDiffer, match=r"short: Cenote differs from ST torch \(cosine 0\.9000000\)"):
        report.check_agreement([turned, ranked])


def test_picture(part: report.Section, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `docs`")
    report.write_png(tmp_path / "a.png", [part, part], "x")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_files(part: report.Section, tmp_path: Path) -> None:
    report.write_json(tmp_path / "a.json", [part], {"processor": "x"})
    report.write_markdown(tmp_path / "a.md", [part])
    read = json.loads((tmp_path / "a.json").read_text())
    assert read["processor"] == "x"
    assert read["sections"][0]["rows"][1]["seconds"] == [4.0]
    assert "| Cenote | 2.0 | 6 | 50.0% | 1.00x | 1.0000000 | 50% | own |" in (tmp_path / "a.md").read_text()
