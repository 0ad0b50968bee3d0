"""The pages that are written by programs: what is decided about eleven checkpoints, and the tasks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from .inspected import CHECKPOINTS, FOLDER, said


def test_each_checkpoint_has_its_file() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CHECKPOINTS)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_is_decided_is_what_was_decided(name: str, tmp_path: Path) -> None:
    kept = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert said(name, tmp_path / "m") == kept, "run `PYTHONPATH=src:tests python -m doors.inspected` and read the diff"


@pytest.mark.parametrize("name", ["tasks", "models"])
def test_a_page_is_what_there_is(name: str) -> None:
    path = Path(__file__).parents[2] / "docs" / f"make_{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert path.with_name(f"{name}.md").read_text(encoding="utf-8") == made.page(), f"run `python docs/{path.name}`"
