"""What people see on a terminal."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from cenote.cli.job import State
from cenote.cli.show import print_embeddings, progress_bar, shortened, summary
from cenote.cli.sinks import Result, TableSink
from cenote.cli.sources import Record, Sources
from cenote.cli.target import Target
from cenote.errors import BadInput

FORMS = ("table", "jsonl", "npy")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_shows_texts_and_rates_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress_bar(State({}, num_done=100, seconds=1.0), 50.0, quiet=False) as move:
        move(State({}, num_done=1300, num_tokens=24000, seconds=3.0), 25.0)
    said = stderr.getvalue()
    for part in ("1,300 texts", "600 texts/s", "12,000 tokens/s", "50%"):
        assert part in said


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), False), (Terminal(), True)])
def test_there_is_no_bar_in_a_pipe_or_when_quiet(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, quiet: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(State({}), 50.0, quiet=quiet) as move:
        move(State({}, num_done=13), 25.0)
    assert stream.getvalue() == ""


def test_stdout_decides_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(("a",), ())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert Target.of(sources, None, "auto", None, False, skip=False, forms=FORMS).form == "table"
    assert Target.of(sources, None, "jsonl", None, False, skip=False, forms=FORMS).form == "jsonl"
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert Target.of(sources, None, "auto", None, False, skip=False, forms=FORMS).form == "jsonl"


def test_the_summary_counts_everything() -> None:
    state = State({}, num_done=1200, num_failed=2, num_tokens=34567, num_truncated=3, seconds=4.0)
    assert summary(state, resumed_at=0) == "1,200 texts, 34,567 tokens, 3 cut, 2 failed, 4.00 s, 300.0 texts/s"
    assert summary(state, resumed_at=512).endswith("(continued at input 512)")


def test_a_failed_input_has_its_reason_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    stdout = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    kept = TableSink(3)
    results = [
        Result(Record(0, "a", 0), 3),
        Result(Record(1, None, 0), error=BadInput("Line 2 [x]: broken")),
        Result(Record(2, "c", 0), 3, truncated=True),
    ]
    kept.write(results, np.array([[3, 4], [np.nan, np.nan], [4, -3]], np.float32))
    print_embeddings(kept)
    said = stdout.getvalue()
    for part in ("failed: Line 2 [x]: broken", "5.0000", "3 (cut)", "cosine similarity"):
        assert part in said
    assert "nan" not in said


def test_shortened_texts_are_safe_to_print() -> None:
    assert shortened("a\n b\tc") == "a b c"
    assert shortened("\x1b[31mred") == "\N{REPLACEMENT CHARACTER}[31mred"
    assert len(shortened("x" * 1000)) == 48
