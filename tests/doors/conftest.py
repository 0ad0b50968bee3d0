"""The command line in process, and tiny models that classify and score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from cenote import LLM
from cenote.cli.app import app

if TYPE_CHECKING:
    from support.fixtures import Tiny

Cenote = Callable[..., Result]
LABELS = ("bad", "fair", "good")


@pytest.fixture
def cenote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cenote:
    """Runs the command line in `tmp_path`; `expect` is the exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, expect: int = 0, stdin: str | bytes = "", **env: str) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=env, prog_name="cenote")
        assert result.exit_code == expect, (result.output, result.exception)
        return result

    return run


@pytest.fixture(scope="session")
def classifier(tiny: Tiny) -> str:
    """Folder of a classifier with the labels `LABELS`."""
    return str(tiny("bert", head="sequence_classification", id2label=dict(enumerate(LABELS))))


@pytest.fixture(scope="session")
def cross_encoder(tiny: Tiny) -> str:
    """Folder of a classifier with one label."""
    return str(tiny("bert", head="sequence_classification", num_labels=1))


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    """The embedded default model, offline."""
    with LLM() as opened:
        yield opened
