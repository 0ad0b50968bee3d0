"""Flags come from settings classes alone; the page of the command line comes from the commands."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner

from cenote.cli.app import app
from cenote.cli.options import Given, settings
from cenote.config import MachineSettings, ModelSettings, ServerSettings, setting


@dataclass(frozen=True)
class Toys:
    """Settings that no command has."""

    num_toys: int = setting(3, "How many.")
    weight_kg: float = setting(0.5, "How heavy.")
    kind: Literal["ball", "bear"] | None = setting(None, "Which.")
    owner: tuple[str, ...] = setting((), "Whose.")
    soft: bool = setting(True, "Whether soft.")
    label: str | None = setting(None, "What it says.", metavar="WORDS")


def _run(*arguments: str, **env: str) -> tuple[Toys, dict[str, Any]]:
    got: list[tuple[Toys, dict[str, Any]]] = []

    @click.command()
    @settings(Toys)
    def play(given: Given) -> None:
        got.append((given.settings(Toys), given.values(Toys)))

    result = CliRunner().invoke(play, list(arguments), env=env, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return got[0]


def test_nothing_written_is_nothing_given() -> None:
    assert _run() == (Toys(), {})


def test_every_kind_of_field_has_its_flag() -> None:
    arguments = ["--num-toys=4", "--weight-kg=2", "--kind=bear", "--owner=a", "--owner=b", "--no-soft", "--label=x"]
    wanted = Toys(4, 2.0, "bear", ("a", "b"), False, "x")
    assert _run(*arguments)[0] == wanted


def test_flags_win_over_the_environment() -> None:
    made, written = _run("--num-toys", "4", CENOTE_NUM_TOYS="5", CENOTE_OWNER="c,d")
    assert (made.num_toys, made.owner) == (4, ("c", "d"))
    assert written == {"num_toys": 4}


@pytest.mark.parametrize("arguments", [["--kind", "cat"], ["--num-toys", "many"], ["--soft", "yes"]])
def test_values_that_are_not_allowed_are_usage_errors(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        _run(*arguments)


@pytest.mark.parametrize(
    ("command", "classes"),
    [
        ("embed", [ModelSettings, MachineSettings]),
        ("classify", [ModelSettings, MachineSettings]),
        ("score", [ModelSettings, MachineSettings]),
        ("rerank", [ModelSettings, MachineSettings]),
        ("serve", [ModelSettings, MachineSettings, ServerSettings]),
    ],
)
def test_commands_have_a_flag_for_each_setting(command: str, classes: list[Any]) -> None:
    said = CliRunner().invoke(app, [command, "--help"]).stdout
    for cls in classes:
        for f in fields(cls):
            assert f"--{f.name.replace('_', '-')} " in said or f"--{f.name.replace('_', '-')}\n" in said
            assert f"CENOTE_{f.name.upper()}]" in said


def test_secrets_have_no_default_in_the_help() -> None:
    said = CliRunner().invoke(app, ["serve", "--help"], env={"CENOTE_API_KEY": "s3cret"}).stdout
    assert "s3cret" not in said


def test_the_page_is_what_the_commands_say() -> None:
    path = Path(__file__).parents[2] / "docs" / "make_cli.py"
    spec = importlib.util.spec_from_file_location("make_cli", path)
    assert spec is not None
    assert spec.loader is not None
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    assert path.with_name("cli.md").read_text(encoding="utf-8") == make_cli.page(), "run `python docs/make_cli.py`"


def test_serve_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cenote.server.serve", raising=False)
    monkeypatch.setattr(builtins, "__import__", _no_uvicorn(builtins.__import__))
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert result.stderr == "error: Serving needs uvicorn. Run `pip install 'cenote[server]'`.\n"


def _no_uvicorn(real: Any) -> Any:
    def load(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith(("uvicorn", "server.serve")):
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *arguments, **more)

    return load
