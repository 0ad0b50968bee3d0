"""`cenote tune`: what it measures, what it may choose, and that what it keeps is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cenote import LLM
from cenote.tuning import Figures, Trial, choose
from support.profiles import keep_in, leave

if TYPE_CHECKING:
    from support.fixtures import Tiny

    from .conftest import Cenote

FAST = ("--rounds", "2", "--seconds", "0.02", "--device", "cpu")
ALONE = ("--num-workers", "1", "--threads-per-worker", "1")


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of profiles."""
    return keep_in(tmp_path / "assets", monkeypatch)


@pytest.fixture(scope="module")
def folder(tiny: Tiny) -> Path:
    """A tiny model."""
    return tiny("bert", max_positions=300)


def trial(label: str, *rounds: tuple[float, float, float]) -> Trial:
    return Trial(label, {"name": label}, [Figures(*figures) for figures in rounds])


BASE = trial("base", (100, 10, 50), (102, 10.2, 50), (98, 9.8, 50))


def test_only_what_beats_the_default_by_more_than_noise_is_chosen() -> None:
    # All figures 3 % better, where the default varies by 4 % in two of the three.
    little = trial("little", (103, 10.3, 51.5), (103, 10.3, 51.5), (103, 10.3, 51.5))
    choice = choose("it", [BASE, little], "throughput")
    assert choice.chosen is BASE
    assert choice.compared[0].gain == pytest.approx(0.03)
    assert choice.compared[0].spread == pytest.approx(0.04)
    # The question alone does not vary, so there 3 % are enough.
    assert choose("it", [BASE, little], "latency").chosen is little
    # Far better at the median, but it varies more than that.
    wild = trial("wild", (150, 15, 50), (90, 9, 50), (140, 14, 50))
    assert choose("it", [BASE, wild], "throughput").chosen is BASE
    worse, better, best = (trial(str(by), *[(100 * by, 10 * by, 50 * by)] * 3) for by in (0.5, 1.2, 1.3))
    assert choose("it", [BASE, better, best, worse], "all").chosen is best
    refused = Trial("refused", {}, refusal="not here")
    choice = choose("it", [BASE, refused], "all")
    assert (choice.chosen, choice.compared, choice.refused) == (BASE, (), (refused,))


def test_the_goal_decides_what_counts() -> None:
    fast_alone = trial("alone", *[(80, 8, 100)] * 3)
    assert choose("it", [BASE, fast_alone], "latency").chosen is fast_alone
    assert choose("it", [BASE, fast_alone], "throughput").chosen is BASE
    assert choose("it", [BASE, fast_alone], "all").compared[0].ratios["query_per_s"] == 2


def test_what_is_found_is_kept_and_used(cenote: Cenote, folder: Path, where: Path) -> None:
    result = cenote("tune", str(folder), *FAST)
    for part in ("workers and threads", "max_batch_tokens", "short texts/s", "spread"):
        assert part in result.stdout
    (path,) = where.glob("*.json")
    assert f"Kept in {path}" in result.stdout
    kept = json.loads(path.read_text())
    assert kept["goal"] == "all"
    told = "The defaults stay" if not kept["settings"] else "Best here: " + ", ".join(
        f"{name}={value}" for name, value in kept["settings"].items()
    )  # fmt: skip
    assert told in result.stdout
    with LLM(str(folder), device="cpu") as llm:
        for name, value in kept["settings"].items():
            assert getattr(llm.engine.machine, name) == value


def test_a_dry_run_keeps_nothing(cenote: Cenote, folder: Path, where: Path) -> None:
    cenote("tune", str(folder), *FAST, *ALONE, "--dry-run")
    assert not list(where.iterdir())


def test_what_is_given_is_not_tuned(cenote: Cenote, folder: Path, where: Path) -> None:
    result = cenote("tune", str(folder), *FAST, *ALONE)
    assert "workers and threads" not in result.stdout
    assert "max_batch_tokens=256" in result.stdout
    both = ("--max-batch-tokens", "64", "--threads-per-worker", "1")
    assert "Nothing is left to tune." in cenote("tune", str(folder), *FAST, *both, expect=2).stderr


def test_precisions_are_tried_only_if_asked_for(cenote: Cenote, folder: Path, where: Path) -> None:
    fixed = ("--max-batch-tokens", "64", *ALONE, "--dry-run")
    result = cenote("tune", str(folder), *FAST, *fixed, "--half", "--int8")
    for part in ("dtype=bfloat16", "dtype=float16", "quantization=int8"):
        assert part in result.stdout
    assert "Nothing is left to tune." in cenote("tune", str(folder), *FAST, *fixed, expect=2).stderr


def test_an_old_profile_does_not_decide_what_the_default_is(cenote: Cenote, folder: Path, where: Path) -> None:
    path = leave(folder, {"max_batch_tokens": 77})
    result = cenote("tune", str(folder), *FAST, *ALONE)
    assert "max_batch_tokens=256" in result.stdout
    assert json.loads(path.read_text())["settings"].get("max_batch_tokens") != 77


def test_inspect_says_what_the_profile_decides(cenote: Cenote, folder: Path, where: Path) -> None:
    path = leave(folder, {"max_batch_tokens": 77, "dtype": "bfloat16"})
    found = json.loads(cenote("inspect", str(folder), "--json", "--device", "cpu").stdout)
    assert found["max_batch_tokens"] == {"value": 77, "source": f"profile {path}"}
    assert found["dtype"]["value"] == "bfloat16"
    left = json.loads(cenote("inspect", str(folder), "--json", "--device", "cpu", "--no-profile").stdout)
    assert left["max_batch_tokens"] == {"value": 1024, "source": "default: this machine"}
    given = json.loads(cenote("inspect", str(folder), "--json", "--device", "cpu", "--max-batch-tokens", "9").stdout)
    assert given["max_batch_tokens"] == {"value": 9, "source": "user"}
