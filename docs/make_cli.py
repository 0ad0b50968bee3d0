"""Writes docs/cli.md from the commands' own help: `python docs/make_cli.py`. A test holds the file to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from cenote.cli import other_flags
from cenote.cli.app import app

PAGE = Path(__file__).with_name("cli.md")
_WIDTH = 100
_INTRO = """# The command line

What `cenote --help` and the help of each command say. This page is written by `python docs/make_cli.py`.
"""


def page() -> str:
    """The whole page."""
    commands = {"cenote": app, **{f"cenote {name}": command for name, command in app.commands.items()}}
    parts = [_INTRO, *(_section(title, command) for title, command in commands.items())]
    return "\n".join([*parts, *_others()])


def _others() -> Iterator[str]:
    """Flags of other servers that `cenote serve` reads too."""
    yield "## Flags of other servers\n"
    yield "`cenote serve` reads these of text-embeddings-inference and of vLLM, so that their command lines start it.\n"
    yield "| flag | here |\n|---|---|"
    for flag, own in other_flags.SAME.items():
        yield f"| `{flag}` | `{own}` |"
    for flag, values in other_flags.BY_VALUE.items():
        for value, read in values.items():
            yield f"| `{flag} {value}` | `{' '.join(read)}` |"
    for flag in other_flags.IDLE:
        yield f"| `{flag}` | Changes nothing. |"
    for flag, way in other_flags.ELSEWHERE.items():
        yield f"| `{flag}` | Refused. {way} |"
    yield ""


def _section(title: str, command: click.Command) -> str:
    context = click.Context(
        command,
        info_name=title,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )
    lines = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"## `{title}`\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
