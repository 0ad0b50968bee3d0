"""The examples of README.md and docs/ run, block after block, each file in a session of its own.

A ```python block runs unless `<!-- no-run -->` stands right above it. A ```console or ```bash block runs where
`<!-- run -->` stands above it; in a console block, lines after `$ cenote ...` are the expected output, with `...` for
what varies.
"""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]

NOT_RUN: dict[str, int] = {"docs/clients.md": 15}
"""Python blocks per page that are not run here; whoever adds one says so. Those of clients run beside a server."""

RUN, SKIP = "<!-- run -->", "<!-- no-run -->"
SHELLS = ("console", "bash")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comment right above it, its text, and the line where the text begins."""

    language: str
    mark: str
    text: str
    line: int


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    mark = ""
    for token in MarkdownIt().parse(markdown):
        if token.type == "fence" and token.map:
            language = (token.info.split() or [""])[0]
            yield Block(language, mark, token.content, token.map[0] + 2)
        mark = token.content.strip() if token.type == "html_block" else ""


def page(path: str) -> list[Block]:
    """The fenced blocks of a page of this repository."""
    return list(blocks((ROOT / path).read_text(encoding="utf-8")))


_RUNNER = """
import json, sys
namespace = {"__name__": "__main__"}
for line, text in json.load(sys.stdin):
    # Blank lines in front make the line numbers of a traceback those of the page.
    exec(compile("\\n" * (line - 1) + text, sys.argv[1], "exec"), namespace)
"""


def run_python(examples: list[Block], name: str, cwd: Path, env: dict[str, str]) -> None:
    """Execute blocks in one namespace of a fresh process; a traceback shows the page and its line."""
    if not examples:
        return
    given = json.dumps([(block.line, block.text) for block in examples])
    command = [sys.executable, "-c", _RUNNER, name]
    done = subprocess.run(command, input=given, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name}: an example fails\n{done.stderr}"


def commands(block: Block) -> Iterator[tuple[str, str | None]]:
    """Each command of a shell block and the output it promises, None where it promises nothing."""
    if block.language == "bash":
        yield block.text, None
        return
    for part in ("\n" + block.text).split("\n$ ")[1:]:
        command, _, promised = part.partition("\n")
        yield command, promised.strip() or None


def run_shell(block: Block, name: str, cwd: Path, env: dict[str, str]) -> None:
    """Run the commands of a block; each must succeed and print what the page shows."""
    for command, promised in commands(block):
        shell = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(shell, cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}:{block.line}: {command}\n{done.stdout}\n{done.stderr}"
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        same = promised is None or doctest.OutputChecker().check_output(promised + "\n", done.stdout, flags)
        assert same, f"{name}:{block.line}: {command}\npromised:\n{promised}\nprinted:\n{done.stdout}"


@pytest.mark.parametrize("path", PAGES)
def test_python_examples_run(path: str, tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    examples = [block for block in page(path) if block.language == "python"]
    shown_only = [block for block in examples if block.mark == SKIP]
    assert len(shown_only) == NOT_RUN.get(path, 0), f"{path}: blocks marked {SKIP} are counted in NOT_RUN"
    run_python([block for block in examples if block.mark != SKIP], path, tmp_path, subprocess_env)


@pytest.mark.parametrize("path", PAGES)
def test_shell_examples_run(path: str, tmp_path: Path, cenote_env: dict[str, str]) -> None:
    marked = [block for block in page(path) if block.mark == RUN]
    assert all(block.language in SHELLS for block in marked), f"{path}: {RUN} is for {' and '.join(SHELLS)} blocks"
    for block in marked:
        run_shell(block, path, tmp_path, cenote_env)


def test_the_readme_shows_the_two_commands_and_an_example() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make serve" in text
    assert "make test" in text
    assert any(block.language == "python" and block.mark != SKIP for block in page("README.md"))


def test_a_lying_python_block_fails_and_names_its_line(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    examples = list(blocks("# Page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n"))
    with pytest.raises(AssertionError, match=r'File "page\.md", line 8'):
        run_python(examples, "page.md", tmp_path, subprocess_env)


@pytest.mark.parametrize(
    "text", ["```console\n$ false\n```", "```console\n$ echo 1\n2\n```", "```bash\nfalse | true\n```"]
)
def test_a_lying_shell_block_fails(text: str, tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    (block,) = blocks(f"{RUN}\n\n{text}\n")
    assert block.mark == RUN
    with pytest.raises(AssertionError, match=r"page\.md:4"):
        run_shell(block, "page.md", tmp_path, subprocess_env)


def test_an_honest_shell_block_passes(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    (block,) = blocks("```console\n$ echo one two\none ...\n$ echo three\n```\n")
    assert list(commands(block)) == [("echo one two", "one ..."), ("echo three", None)]
    run_shell(block, "page.md", tmp_path, subprocess_env)
