"""The habits of the house, each as a function from a source file to the places that break it.

A rule is pure: it takes a `Source` and yields `Finding`s, so it can be fed a bad snippet and seen to fail.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_MEDIAN_FUNCTION_LINES = 15
MAX_NESTING = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef

BANNED_FILES = ("utils.py", "common.py", "helpers.py", "misc.py")
BANNED_CLASSES = re.compile(r"(Manager|Handler|Processor|Helper|Mixin)$|^_?Base(?=[A-Z]|$)")
BANNED_VALUES = frozenset({"ctx"})

WEB = {
    *("aiohttp", "fastapi", "httptools", "httpx", "msgspec"),
    *("prometheus_client", "pydantic", "starlette", "uvicorn", "uvloop"),
}
WORDS = {
    *("__init__", "checkpoint", "config", "cores", "errors", "hf", "hookspecs"),
    *("inputs", "plugins", "rope", "steps", "types"),
}
"""Modules of the lowest floor, which know neither torch nor the web."""


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule; `str()` gives `file:line: rule: message`."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root of the repository, with slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text, self.path)

    @property
    def product(self) -> str | None:
        """The path below `src/cenote/`, or None for tests, benchmarks and the like."""
        head, _, tail = self.path.partition("src/cenote/")
        return tail if tail and not head else None


Hit = tuple[int, str]
Check = Callable[[Source], Iterable[Hit]]
RULES: dict[str, Check] = {}


def rule(check: Check) -> Check:
    """Enter a checker into `RULES` under its own name, with dashes."""
    RULES[check.__name__.replace("_", "-")] = check
    return check


def findings(source: Source, name: str) -> list[Finding]:
    """All places of a file that break the rule `name`."""
    return [Finding(source.path, line, name, message) for line, message in RULES[name](source)]


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function of a file, methods and inner functions included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from `def` to the last one, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute chain, or "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a file imports from other packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@rule
def file_size(source: Source) -> Iterator[Hit]:
    """A file is read in one sitting."""
    lines = source.text.count("\n")
    if lines >= MAX_FILE_LINES:
        yield lines, f"{lines} lines, allowed are fewer than {MAX_FILE_LINES}; split it by what it is about"


@rule
def function_size(source: Source) -> Iterator[Hit]:
    """A function fits a screen."""
    for function in functions(source.tree):
        if length(function) > MAX_FUNCTION_LINES:
            yield function.lineno, f"{function.name} has {length(function)} lines, allowed are {MAX_FUNCTION_LINES}"


@rule
def nesting(source: Source) -> Iterator[Hit]:
    """Blocks within blocks end at the third. A `with` decides nothing, so it does not count."""
    for function in functions(source.tree):
        depth, line = _deepest(function.body)
        if depth > MAX_NESTING:
            yield line, f"{function.name} nests {depth} deep, allowed are {MAX_NESTING}; return early or name a part"


_SCOPES = (ast.With, ast.AsyncWith)
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match, *_SCOPES)


def _deepest(body: list[ast.stmt]) -> tuple[int, int]:
    """Depth of the deepest block of a body, and its line; `elif` is no deeper than its `if`."""
    deepest = (0, 0)
    for node in body:
        if isinstance(node, _BLOCKS):
            depth, line = max((_deepest(part) for part in _parts(node)), default=(0, 0))
            deepest = max(deepest, (depth + (not isinstance(node, _SCOPES)), line or node.lineno))
    return deepest


def _parts(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    while isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        yield node.body
        node = node.orelse[0]
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for arm in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield arm.body


@rule
def names(source: Source) -> Iterator[Hit]:
    """A name says what the thing is; these say nothing."""
    file = source.path.rsplit("/", 1)[-1]
    if file in BANNED_FILES:
        yield 1, f"a file called {file} collects what has no home; name it for what it is about"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and BANNED_CLASSES.search(node.name):
            yield node.lineno, f"class {node.name} is named for its role in a pattern; name it for what it is"
        elif isinstance(node, ast.arg) and node.arg in BANNED_VALUES:
            yield node.lineno, f"argument {node.arg} may hold anything; name what it holds"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in BANNED_VALUES:
            yield node.lineno, f"variable {node.id} may hold anything; name what it holds"


@rule
def docstrings(source: Source) -> Iterator[Hit]:
    """Modules, public classes and public functions of the product explain themselves."""
    if source.product is None:
        return
    if ast.get_docstring(source.tree) is None and source.tree.body:
        yield 1, "the module has no docstring"
    for node in source.tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_") or _is_overload(node):
            continue
        if ast.get_docstring(node) is None:
            yield node.lineno, f"{node.name} is public and has no docstring"


def _is_overload(node: ast.ClassDef | Function) -> bool:
    return any(dotted(decorator).endswith("overload") for decorator in node.decorator_list)


_BROAD = {"Exception", "BaseException"}


@rule
def swallowed_errors(source: Source) -> Iterator[Hit]:
    """An error is answered, logged or passed on; never dropped."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and all(map(_does_nothing, node.body)):
            yield node.lineno, "catches everything and does nothing; catch what is expected, and answer it"
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress") and any(map(_is_broad, node.args)):
            yield node.lineno, "suppresses everything; name the errors that are expected"


def _is_broad(kind: ast.expr | None) -> bool:
    kinds: list[ast.expr | None] = [*kind.elts] if isinstance(kind, ast.Tuple) else [kind]
    return any(item is None or dotted(item) in _BROAD for item in kinds)


def _does_nothing(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass | ast.Continue)


_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


@rule
def unfinished(source: Source) -> Iterator[Hit]:
    """What is in the tree works; plans live elsewhere."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplemented" in ast.unparse(node.exc):
            yield node.lineno, "raises that it is not implemented; implement it, or refuse with a CenoteError"
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and _UNFINISHED.search(token.string):
            yield token.start[0], f"a comment that postpones work: {token.string.strip()}"


@rule
def environment(source: Source) -> Iterator[Hit]:
    """Only `config.py` reads the environment, so every setting has one list of sources."""
    if source.product in (None, "config.py"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and dotted(node) in ("os.environ", "os.environb", "os.getenv"):
            yield node.lineno, f"{dotted(node)} is read outside config.py; make it a setting"
    for line, name in imports(source.tree):
        if name in ("os.environ", "os.environb", "os.getenv"):
            yield line, f"{name} is imported outside config.py; make it a setting"


@rule
def one_linear(source: Source) -> Iterator[Hit]:
    """Every matrix product of a model passes `layers/linear.py`, so precision and sharding enter there alone."""
    if source.product in (None, "layers/linear.py"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and dotted(node).endswith("nn.Linear"):
            yield node.lineno, "nn.Linear outside layers/linear.py; use layers.linear.Linear"
    for line, name in imports(source.tree):
        if name.startswith("torch.nn.") and name.endswith(".Linear"):
            yield line, f"{name} imported outside layers/linear.py; use layers.linear.Linear"


@rule
def web_stays_at_the_door(source: Source) -> Iterator[Hit]:
    """The engine works without a web library, so only `server/` and `loadgen/`, which asks servers, import one."""
    if source.product is None or source.product.startswith(("server/", "loadgen/")):
        return
    for line, name in imports(source.tree):
        if name.split(".")[0] in WEB:
            yield line, f"{name.split('.')[0]} is imported outside server/ and loadgen/"


@rule
def words_without_torch(source: Source) -> Iterator[Hit]:
    """The lowest floor knows no tensors, not even inside a function."""
    if source.product is None or source.product.removesuffix(".py") not in WORDS:
        return
    for line, name in imports(source.tree):
        if name.split(".")[0] == "torch" and not _only_for_types(source.tree, line):
            yield line, "imports torch below the floor where tensors begin"


def _only_for_types(tree: ast.Module, line: int) -> bool:
    guards = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    return any(
        dotted(guard.test).endswith("TYPE_CHECKING") and guard.lineno < line <= (guard.end_lineno or 0)
        for guard in guards
    )


_ASSERTING = re.compile(r"raises|warns|assert|check|expect|verify|fail|deprecated_call")


@rule
def tests_assert(source: Source) -> Iterator[Hit]:
    """A test that asserts nothing cannot fail for the right reason."""
    if not source.path.startswith("tests/"):
        return
    for function in functions(source.tree):
        if function.name.startswith("test_") and not any(map(_can_fail, ast.walk(function))):
            yield function.lineno, f"{function.name} asserts nothing"


def _can_fail(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.Call) and _ASSERTING.search(ast.unparse(node.func)) is not None
    )
