"""The parts of the start-up measurement that start nothing."""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path

import pytest
from bench.errors import LoadFailed, TooFewCpus
from rich.console import Console

from bench import load, machine, report, servers


def test_a_figure_shows_median_least_and_most() -> None:
    figure = load.Figure("start", "s", (0.2, 1.0, 0.25))
    assert figure.cells() == ("start", "0.25 s", "0.2 s", "1 s")
    assert load.Figure("memory", "MiB", (1234.4,)).cells() == ("memory", "1,234 MiB", "1,234 MiB", "1,234 MiB")


def test_memory_of_this_process_is_read() -> None:
    assert 5 < servers.memory_mib(os.getpid()) < 100_000
    assert servers.memory_mib(os.getpid(), "RssAnon") < servers.memory_mib(os.getpid())


def test_a_command_that_fails_is_named_with_its_message() -> None:
    with pytest.raises(LoadFailed, match=r"(?s)ended with 3:.*no such thing"):
        load.checked([sys.executable, "-c", "import sys; sys.stderr.write('no such thing'); sys.exit(3)"])


def test_a_server_that_ends_is_reported(tmp_path: Path) -> None:
    kind = servers.Kind("It", (sys.executable, "-c", "print('port taken'); raise SystemExit(4)"))
    with pytest.raises(LoadFailed, match=r"(?s)It ended with 4:.*port taken"), servers.served(tmp_path / "a.log", kind):
        pass


@pytest.mark.parametrize(("busy", "warned"), [(0.01, False), (0.6, True)])
def test_a_busy_machine_is_said(busy: float, warned: bool) -> None:
    out = StringIO()
    report.print_busy(Console(file=out, width=120), busy)
    assert ("not a measurement" in out.getvalue()) is warned


def test_more_cpus_than_allowed_are_refused() -> None:
    with pytest.raises(TooFewCpus, match="lower --threads"):
        machine.pin(100_000)
