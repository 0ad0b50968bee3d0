"""The command line: what it teaches and what it refuses."""

from __future__ import annotations

import pytest
from bench.__main__ import main
from bench.errors import PeerUnavailable
from click.testing import CliRunner
from rich.console import Console

from bench import compare


def test_help_teaches_the_common_calls() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert "python -m bench --quick" in text
    assert "python -m bench load" in text


def test_unknown_subject_is_refused_with_the_list() -> None:
    done = CliRunner().invoke(main, ["--subjects", "cenote,faiss"])
    assert done.exit_code == 2
    assert "faiss" in done.output
    assert "st-openvino" in done.output


def test_peers_is_the_default_command(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[compare.Plan] = []
    monkeypatch.setattr(compare, "run", lambda plan, console: plans.append(plan))
    done = CliRunner().invoke(main, ["--quick", "--workloads", "short", "--subjects", "cenote,st-torch"])
    assert done.exit_code == 0
    (plan,) = plans
    assert (list(plan.sizes), plan.num_rounds, plan.subjects) == (["short"], 3, ("cenote", "st-torch"))


def test_every_workload_runs_unless_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[compare.Plan] = []
    monkeypatch.setattr(compare, "run", lambda plan, console: plans.append(plan))
    assert CliRunner().invoke(main, []).exit_code == 0
    assert plans[0].sizes == {"short": 1024, "paragraphs": 160, "rerank": 100}


def test_a_workload_that_no_subject_does_is_refused() -> None:
    done = CliRunner().invoke(main, ["--workloads", "short,rerank", "--subjects", "cenote-lists"])
    assert done.exit_code == 2
    assert "none of cenote-lists does rerank" in done.output


def test_a_missing_peer_ends_the_run_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: compare.Plan, console: Console) -> None:
        raise PeerUnavailable("pip ended with 1")

    monkeypatch.setattr(compare, "run", broken)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 1
    assert "pip ended with 1" in done.output
    assert "--allow-missing" in done.output
