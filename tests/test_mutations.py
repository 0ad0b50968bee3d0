"""The script that breaks the product on purpose: that it can tell, and that its list still fits the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.mutation import Mutation
from support.mutation_list import CONTROL, MUTATIONS
from support.parity import CASES

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "parity.md"


def test_a_broken_product_is_caught_and_a_whole_one_is_not() -> None:
    names = ["gelu becomes its tanh approximation", "window wider by one"]
    command = [sys.executable, str(ROOT / "tests" / "mutations.py"), "--only", *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for name in names:
        assert any(line.startswith(name) and " caught " in line for line in lines), done.stdout
    assert any(line.startswith(CONTROL.name) and "not caught" in line for line in lines), done.stdout


@pytest.mark.parametrize("mutation", [*MUTATIONS, CONTROL], ids=lambda mutation: mutation.name)
def test_every_edit_fits_the_product(mutation: Mutation) -> None:
    text = (ROOT / "src" / "cenote" / mutation.file).read_text(encoding="utf-8")
    edited = mutation.applied(text)
    assert edited != text
    compile(edited, mutation.file, "exec")


def test_an_edit_whose_place_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        Mutation("gone", "x.py", "old", "new").applied("something else")


def test_the_document_lists_every_case_and_every_edit() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["case", *CASES, "edit", *(mutation.name for mutation in MUTATIONS)]
