"""Every file of the repository against every rule of the house."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path

import pytest

from house import rules, text_rules

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[str]:
    """Files that git has or would take, as paths from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted({path for path in listed if (ROOT / path).is_file()})


PYTHON_FILES = tracked("*.py")


def source(path: str) -> rules.Source:
    """The file at a path from the root."""
    return rules.Source(path, (ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PYTHON_FILES)
def test_file_keeps_the_rules(path: str) -> None:
    file = source(path)
    broken = [finding for name in rules.RULES for finding in rules.findings(file, name)]
    assert not broken, "\n" + "\n".join(map(str, broken))


def test_half_of_the_functions_are_short() -> None:
    product = [source(path) for path in PYTHON_FILES if path.startswith("src/cenote/")]
    lengths = [rules.length(function) for file in product for function in rules.functions(file.tree)]
    median = statistics.median(lengths)
    print(f"{len(lengths)} functions, median length {median:g} lines")
    assert median <= rules.MAX_MEDIAN_FUNCTION_LINES


def test_no_text_names_a_machine_or_a_registry() -> None:
    broken = [str(finding) for path in tracked() for finding in text_rules.findings(path, readable(path))]
    assert not broken, "\n" + "\n".join(broken)


def readable(path: str) -> str:
    """The text of a file, or "" where it is no text."""
    data = (ROOT / path).read_bytes()
    return "" if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")
