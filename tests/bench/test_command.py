"""The command line: what it teaches and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.errors import PeerUnavailable
from click.testing import CliRunner
from rich.console import Console

from bench import compare, peers

Ran = tuple[compare.Plan, Sequence[compare.Contest]]


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
    plans: list[Ran] = []
    monkeypatch.setattr(compare, "run", lambda plan, contests, console: plans.append((plan, contests)))
    done = CliRunner().invoke(main, ["--quick", "--workloads", "short", "--subjects", "cenote,st-torch"])
    assert done.exit_code == 0
    ((plan, (contest,)),) = plans
    assert [workload.name for workload in contest.workloads] == ["short"]
    assert (plan.num_rounds, contest.subjects) == (3, ("cenote", "st-torch"))


def test_every_workload_runs_unless_some_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[Ran] = []
    monkeypatch.setattr(compare, "run", lambda plan, contests, console: plans.append((plan, contests)))
    monkeypatch.setattr(peers, "build_shape", lambda name, say: peers.Model("rerank", tmp_path, tmp_path))
    assert CliRunner().invoke(main, []).exit_code == 0
    ((_, contests),) = plans
    sizes = {workload.name: len(workload.texts) for contest in contests for workload in contest.workloads}
    assert sizes == {"short": 1024, "paragraphs": 160, "rerank": 100}


def test_a_workload_that_no_subject_does_is_refused() -> None:
    done = CliRunner().invoke(main, ["--workloads", "short,rerank", "--subjects", "cenote-lists"])
    assert done.exit_code == 2
    assert "none of cenote-lists does rerank" in done.output


def test_a_missing_peer_ends_the_run_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: compare.Plan, contests: Sequence[compare.Contest], console: Console) -> None:
        raise PeerUnavailable("pip ended with 1")

    monkeypatch.setattr(compare, "run", broken)
    done = CliRunner().invoke(main, ["--workloads", "short"])
    assert done.exit_code == 1
    assert "pip ended with 1" in done.output
    assert "--allow-missing" in done.output


def test_every_part_has_its_help_and_a_quick_form() -> None:
    for part in ("peers", "shapes", "prefix", "latency", "int8", "serve", "linear", "memory"):
        assert "--quick" in CliRunner().invoke(main, [part, "--help"]).output, part


def test_a_large_shape_runs_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[Ran] = []
    monkeypatch.setattr(compare, "run", lambda plan, contests, console: plans.append((plan, contests)))
    monkeypatch.setattr(peers, "build_shape", lambda name, say: peers.Model("embed", tmp_path, tmp_path))
    for arguments in ([], ["--shapes", "qwen3-0.6b", "--subjects", "cenote", "--name", "large"]):
        assert CliRunner().invoke(main, ["shapes", *arguments]).exit_code == 0
    (usual, contests), (large, (named,)) = plans
    assert [contest.name for contest in contests] == ["bert-base", "modernbert-base", "qwen3-4-layers"]
    assert {n for contest in contests for n in contest.workloads[0].num_tokens} == {256}
    assert (usual.name, large.name, named.name, named.subjects) == ("shapes", "large", "qwen3-0.6b", ("cenote",))
