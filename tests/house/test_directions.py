"""The import contract of `pyproject.toml` holds, knows every module, and can fail."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
FLOORS = [[name.strip(" ()") for name in floor.split(":")] for floor in CONTRACT["contracts"][0]["layers"]]
NAMED = {name for floor in FLOORS for name in floor}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package `cenote` in `folder`, with the project's own contract."""
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": "."}, capture_output=True, text=True, check=False)


def package(folder: Path, **files: str) -> None:
    """Write a package `cenote` of the given modules; every other one that the contract names is empty."""
    (folder / "cenote").mkdir()
    for name, text in {"__init__": "", **dict.fromkeys(NAMED, ""), **files}.items():
        (folder / "cenote" / f"{name}.py").write_text(text, encoding="utf-8")


def test_contract_accepts_imports_that_go_down(tmp_path: Path) -> None:
    package(tmp_path, recipe="from . import errors\n", engine="from . import errors, recipe\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "files",
    [
        {"errors": "from . import engine\n"},
        {"scheduler": "def f():\n    from . import llm\n"},
        {"novelty": ""},
    ],
    ids=["upwards", "upwards-inside-a-function", "module-without-a-floor"],
)
def test_contract_refuses(tmp_path: Path, files: dict[str, str]) -> None:
    package(tmp_path, **files)
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr


def test_every_module_that_exists_has_a_floor() -> None:
    present = {path.stem for path in (ROOT / "src/cenote").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert present - {"__init__", "__pycache__"} <= NAMED
