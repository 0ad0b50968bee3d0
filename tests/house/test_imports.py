"""What a front end needs imports without torch, and the floors below meaning without the web."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "cenote"

_PROBE = """
import importlib, json, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
    heavy = [module for module in sys.argv[1].split(",") if module in sys.modules]
    if heavy:
        break
print(json.dumps([name, heavy]))
"""


def first_heavy(modules: list[str], heavy: list[str], env: dict[str, str]) -> tuple[str, list[str]]:
    """Import `modules` in order in a fresh process; the first that brings one of `heavy`, and which it brought."""
    command = [sys.executable, "-c", _PROBE, ",".join(heavy), *modules]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, found = json.loads(done.stdout)
    return name, found


def modules_of(*stems: str) -> list[str]:
    """Dotted names of the modules and packages of Cenote that exist among `stems`."""
    found = ["cenote"]
    for stem in stems:
        if (PACKAGE / f"{stem}.py").is_file():
            found.append(f"cenote.{stem}")
        elif (PACKAGE / stem).is_dir():
            inner = sorted(path.stem for path in (PACKAGE / stem).glob("*.py") if path.stem != "__init__")
            found += [f"cenote.{stem}", *(f"cenote.{stem}.{name}" for name in inner)]
    return found


CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]


def floor_of(stem: str) -> list[str]:
    """Names of the modules that the import contract puts on the floor of `stem`."""
    floors = [[name.strip(" ()") for name in floor.split(":")] for floor in CONTRACT["layers"]]
    (floor,) = (floor for floor in floors if stem in floor)
    return floor


FRONT = {"cenote": ["cenote"], "words": modules_of(*floor_of("errors")), "meaning": modules_of(*floor_of("recipe"))}


@pytest.mark.parametrize("modules", FRONT.values(), ids=FRONT)
def test_imports_without_torch(modules: list[str], subprocess_env: dict[str, str]) -> None:
    name, heavy = first_heavy(modules, ["torch", "transformers"], subprocess_env)
    assert not heavy, f"importing {name} brings {', '.join(heavy)}"


def test_engine_room_imports_without_the_web(subprocess_env: dict[str, str]) -> None:
    offline = modules_of(*floor_of("engine"), "registry", "llm", "aio")
    name, heavy = first_heavy(offline, ["starlette", "uvicorn", "fastapi", "prometheus_client"], subprocess_env)
    assert not heavy, f"importing {name} brings {', '.join(heavy)}"


def test_the_probe_sees_torch(subprocess_env: dict[str, str]) -> None:
    assert first_heavy(["json", "torch"], ["torch"], subprocess_env) == ("torch", ["torch"])
