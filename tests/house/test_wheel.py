"""The built wheel, installed into an environment of its own, is the whole product."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command, which must succeed; nothing of the checkout is on its path."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without fetching anything."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of a new environment that holds the wheel and borrows what Cenote depends on from this one.

    The borrowed folder comes last on the path and its own path files are not read there, so an editable install of
    the checkout cannot stand in for the wheel.
    """
    home = tmp_path_factory.mktemp("clean")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=home)
    return home / "bin"


def test_wheel_holds_the_package_and_its_licence(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "cenote").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source <= held
    assert "cenote/py.typed" in held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not [name for name in held if name.startswith(("tests/", "bench/"))]


def test_installed_wheel_imports_from_its_own_folder(clean: Path, tmp_path: Path) -> None:
    code = "import cenote, cenote.errors, cenote.config, sys; print(cenote.__file__); print('torch' in sys.modules)"
    place, heavy = run(clean / "python", "-c", code, cwd=tmp_path).split()
    assert Path(place).is_relative_to(clean.parent)
    assert heavy == "False"


def test_installed_command_answers(clean: Path, tmp_path: Path) -> None:
    shown = run(clean / "cenote", "--help", cwd=tmp_path)
    assert "serve" in shown
    assert "embed" in shown
