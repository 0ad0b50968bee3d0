"""Writes docs/cli.md from the commands' own help: `python docs/make_cli.py`. A test holds the file to it."""

from __future__ import annotations

from pathlib import Path

import click

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
    return "\n".join(parts)


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
