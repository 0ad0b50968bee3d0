"""Each rule is fed a snippet that breaks it and its nearest lawful neighbour: it must tell them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from house import rules, text_rules

PRODUCT = "src/cenote/engine.py"
LONG_FUNCTION = "def f():\n" + "    x = 1\n" * rules.MAX_FUNCTION_LINES
POSTPONED = "# TO" + "DO later\n"

BAD: list[tuple[str, str, str]] = [
    ("file-size", PRODUCT, "x = 1\n" * rules.MAX_FILE_LINES),
    ("function-size", PRODUCT, LONG_FUNCTION),
    ("nesting", PRODUCT, "def f(a):\n if a:\n  for b in a:\n   with b:\n    while b:\n     if b:\n      pass\n"),
    ("nesting", PRODUCT, "def f(a):\n try:\n  if a:\n   for b in a:\n    if b:\n     pass\n finally:\n  pass\n"),
    ("nesting", PRODUCT, "def f(a):\n match a:\n  case 1:\n   if a:\n    if a:\n     if a:\n      pass\n"),
    ("names", "src/cenote/utils.py", "x = 1\n"),
    ("names", PRODUCT, "class ModelManager: ...\n"),
    ("names", PRODUCT, "class BasePooler: ...\n"),
    ("names", PRODUCT, "class LoaderMixin: ...\n"),
    ("names", PRODUCT, "def f(ctx): ...\n"),
    ("names", PRODUCT, "with a() as ctx: ...\n"),
    ("docstrings", PRODUCT, "x = 1\n"),
    ("docstrings", PRODUCT, '"""M."""\nclass Engine: ...\n'),
    ("docstrings", PRODUCT, '"""M."""\nasync def run(): ...\n'),
    ("swallowed-errors", PRODUCT, "try:\n f()\nexcept Exception:\n pass\n"),
    ("swallowed-errors", PRODUCT, "try:\n f()\nexcept:\n ...\n"),
    ("swallowed-errors", PRODUCT, "try:\n f()\nexcept (ValueError, BaseException):\n pass\n"),
    ("swallowed-errors", PRODUCT, "with contextlib.suppress(Exception):\n f()\n"),
    ("unfinished", PRODUCT, POSTPONED),
    ("unfinished", PRODUCT, "def f():\n raise NotImplementedError\n"),
    ("environment", PRODUCT, "import os\nx = os.environ.get('A')\n"),
    ("environment", PRODUCT, "import os\nx = os.getenv('A')\n"),
    ("environment", PRODUCT, "from os import environ\n"),
    ("one-linear", "src/cenote/models/bert.py", "from torch import nn\nx = nn.Linear(1, 1)\n"),
    ("one-linear", "src/cenote/models/bert.py", "import torch\nx = torch.nn.Linear(1, 1)\n"),
    ("one-linear", "src/cenote/models/bert.py", "from torch.nn import Linear\n"),
    ("web-stays-at-the-door", PRODUCT, "import starlette.requests\n"),
    ("web-stays-at-the-door", PRODUCT, "def f():\n from msgspec import json\n"),
    ("words-without-torch", "src/cenote/types.py", "import torch\n"),
    ("words-without-torch", "src/cenote/config.py", "def f():\n from torch import nn\n"),
    ("tests-assert", "tests/test_x.py", "def test_x():\n print(1)\n"),
]

GOOD: list[tuple[str, str, str]] = [
    ("file-size", PRODUCT, "x = 1\n" * (rules.MAX_FILE_LINES - 1)),
    ("function-size", PRODUCT, LONG_FUNCTION.removesuffix("    x = 1\n")),
    ("nesting", PRODUCT, "def f(a):\n if a:\n  for b in a:\n   with b:\n    while b:\n     pass\n"),
    ("nesting", PRODUCT, "def f(a):\n" + " if a: pass\n" + " elif a: pass\n" * 9),
    ("names", PRODUCT, "class Baseline: ...\nclass Engine(BaseException): ...\n"),
    ("docstrings", PRODUCT, '"""M."""\ndef _f(): ...\nclass _C: ...\n'),
    ("docstrings", "tests/test_x.py", "def f(): ...\n"),
    ("swallowed-errors", PRODUCT, "try:\n f()\nexcept KeyError:\n pass\n"),
    ("swallowed-errors", PRODUCT, "try:\n f()\nexcept Exception as e:\n log(e)\n"),
    ("swallowed-errors", PRODUCT, "with contextlib.suppress(KeyError):\n f()\n"),
    ("unfinished", PRODUCT, "# nothing is left to do\n"),
    ("environment", "src/cenote/config.py", "import os\nx = os.environ\n"),
    ("environment", "tests/test_x.py", "import os\nx = os.environ\n"),
    ("one-linear", "src/cenote/layers/linear.py", "from torch import nn\nx = nn.Linear(1, 1)\n"),
    ("web-stays-at-the-door", "src/cenote/server/app.py", "import starlette\n"),
    ("words-without-torch", "src/cenote/types.py", "if TYPE_CHECKING:\n import torch\n"),
    ("words-without-torch", PRODUCT, "import torch\n"),
    ("tests-assert", "tests/test_x.py", "def test_x():\n with pytest.raises(KeyError):\n  f()\n"),
]


@pytest.mark.parametrize(("name", "path", "text"), BAD)
def test_bad_snippet_is_found(name: str, path: str, text: str) -> None:
    found = rules.findings(rules.Source(path, text), name)
    assert found
    assert str(found[0]).startswith(f"{path}:{found[0].line}: {name}: ")


@pytest.mark.parametrize(("name", "path", "text"), GOOD)
def test_lawful_neighbour_is_left_alone(name: str, path: str, text: str) -> None:
    assert rules.findings(rules.Source(path, text), name) == []


def test_every_rule_was_seen_to_fail_and_to_pass() -> None:
    assert {name for name, _, _ in BAD} == set(rules.RULES)
    assert {name for name, _, _ in GOOD} == set(rules.RULES)


@pytest.mark.parametrize(
    "text", ["/ro" + "ot/x.py", "see /wo" + "rk/main", "https://py" + "pi.org/simple", "pip --index" + "-url http://x"]
)
def test_bad_text_is_found(text: str) -> None:
    assert list(text_rules.findings("docs/x.md", text))


@pytest.mark.parametrize("text", ["tests/work/x", "http://127.0.0.1:8000/v1/models", "the root of /models", "~/work/x"])
def test_lawful_text_is_left_alone(text: str) -> None:
    assert list(text_rules.findings("docs/x.md", text)) == []


def test_rules_cover_files_that_exist(root: Path) -> None:
    modules = {path.stem for path in (root / "src/cenote").glob("*.py")}
    assert {"config", "errors", "types"} <= modules & rules.WORDS
