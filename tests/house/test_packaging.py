"""`pyproject.toml`, `constraints.txt` and `docs/dependencies.md` say the same about what Cenote stands on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def outer(requirements: list[str]) -> list[Requirement]:
    """The requirements that name another package."""
    parsed = [Requirement(text) for text in requirements]
    return [requirement for requirement in parsed if requirement.name != PROJECT["name"]]


ONE_ENVIRONMENT = outer(PROJECT["dependencies"]) + [
    requirement for extra, listed in EXTRAS.items() if extra != "peers" for requirement in outer(listed)
]


def pins() -> dict[str, str]:
    """Version by package of `constraints.txt`."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", ONE_ENVIRONMENT, ids=str)
def test_requirement_is_pinned_within_its_range(requirement: Requirement) -> None:
    version = pins().get(canonicalize_name(requirement.name))
    assert version is not None, f"constraints.txt does not pin {requirement.name}"
    assert requirement.specifier.contains(version), f"{requirement} does not admit the pinned {version}"


def test_pins_are_exact_and_hold_for_every_build_of_torch() -> None:
    assert len(pins()) > 40
    assert not [name for name, version in pins().items() if not re.fullmatch(r"[\w.]+", version)]


def test_every_dependency_has_its_row() -> None:
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    rows = {canonicalize_name(name) for name in re.findall(r"^\| `([\w.-]+)` \|", text, re.MULTILINE)}
    declared = {canonicalize_name(requirement.name) for requirement in (*ONE_ENVIRONMENT, *outer(EXTRAS["peers"]))}
    declared |= {canonicalize_name("hatchling")}
    assert rows == declared


def test_all_is_what_a_user_can_want() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.extras == set(EXTRAS) - {"all", "test", "peers"}


def test_architecture_names_every_module() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    present = {path.stem for path in (ROOT / "src/cenote").iterdir() if path.suffix == ".py" or path.is_dir()}
    missing = [name for name in present - {"__init__", "__pycache__"} if not re.search(rf"\b{name}(\.py|/)", text)]
    assert not missing, f"docs/architecture.md does not say what {', '.join(sorted(missing))} is for"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_tests_named_by_a_page_exist(page: Path) -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), f"{page.name} names {path}, which is not there"
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
