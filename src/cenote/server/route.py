"""One row of the route table, and how a request finds its row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .dialect import OPS, Dialect

if TYPE_CHECKING:
    from .door import Door

Answer: TypeAlias = "Callable[[Door, Request, Any], Awaitable[Response]]"

CALL_ERRORS = (400, 404, 413, 415, 429, 500, 501, 503, 504)
"""Statuses of a route that runs a model."""
LOOKUP_ERRORS = (400, 404, 413, 415, 503)
"""Statuses of a route that takes a body and runs no model."""


@dataclass(frozen=True)
class Route:
    """One row of the table.

    Where rows share a path, the first one that fits answers; the last one should fit everything.

    Args:
        method: HTTP method.
        path: Path, with `{name}` or `{name:path}` for a part that varies.
        answer: Answers a request; gets the decoded body, or None where the row has none.
        summary: One line for the OpenAPI document.
        dialect: Whose route it is, and so how its errors look.
        also: Other dialects under whose prefix it is reachable too.
        bare: Whether it is reachable without a prefix.
        keys: Fields that a body must have for this row.
        header: Name and value of a header that a request must have for this row, in lower case.
        request: Type of the body, if there is one.
        response: Type of a JSON answer (a struct, or a list), or several that it may be, or the media type of another
            one, or None for an empty one.
        binary: Whether it answers with raw arrays too, where the body asks for them.
        open: Whether it answers without a key although keys are set.
        errors: Statuses that it may answer with, beyond those of every route.
    """

    method: Literal["GET", "POST"]
    path: str
    answer: Answer
    summary: str
    dialect: Dialect
    also: tuple[Dialect, ...] = ()
    bare: bool = True
    keys: frozenset[str] = frozenset()
    header: tuple[str, str] | None = None
    request: type[msgspec.Struct] | None = None
    response: Any = None
    binary: bool = False
    open: bool = False
    errors: tuple[int, ...] = ()

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Names of the dialects under whose prefix it is reachable."""
        return tuple(one.name for one in (self.dialect, *self.also) if one.prefixed)

    @property
    def paths(self) -> tuple[str, ...]:
        """The path alone, then under each prefix."""
        prefixed = [f"/{prefix}{self.path}" for prefix in self.prefixes]
        if self.path == "/":
            # Clients that are given the prefix as an address send no slash after it.
            prefixed += [f"/{prefix}" for prefix in self.prefixes]
        return (*((self.path,) if self.bare else ()), *prefixed)

    @property
    def answers(self) -> tuple[Any, ...]:
        """Types of its JSON answers; () where it gives another one."""
        if isinstance(self.response, tuple):
            return self.response
        return () if self.response is None or isinstance(self.response, str) else (self.response,)

    @cached_property
    def types(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        """Fields that the body may have, with their types."""
        return () if self.request is None else msgspec.structs.fields(self.request)

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of those fields."""
        return frozenset(field.encode_name for field in self.types)


def by_place(routes: Iterable[Route]) -> dict[tuple[str, str], list[Route]]:
    """Rows by path and method, paths without varying parts first; rows that share both keep their order."""
    found: dict[tuple[str, str], list[Route]] = {}
    for row in routes:
        for path in row.paths:
            found.setdefault((path, row.method), []).append(row)
    return dict(sorted(found.items(), key=lambda item: (item[0][0].count("{"), item[0])))


def asks_header(rows: Sequence[Route]) -> bool:
    """Whether a header tells which of `rows` a request is for."""
    return len(rows) > 1 and any(row.header for row in rows)


def by_header(rows: Sequence[Route], headers: Mapping[str, str]) -> Sequence[Route]:
    """Those of `rows` that a request with these headers may be for; never none."""
    if not asks_header(rows):
        return rows
    fitting = [row for row in rows if row.header is None or headers.get(row.header[0], "").lower() == row.header[1]]
    return fitting or [rows[-1]]


def by_keys(rows: Sequence[Route], keys: Collection[str]) -> Route:
    """The first of `rows` all of whose keys a body has, else the last."""
    for row in rows:
        if row.keys.issubset(keys):
            return row
    return rows[-1]


def expected(rows: Sequence[Route]) -> Route:
    """The one of `rows` that a body is likely for while nobody knows it, or where it cannot be read."""
    return rows[0] if rows[0].header else rows[-1]


class Dialects:
    """Which dialect a request speaks, before or without a route that answers it.

    Args:
        routes: The route table.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._rows: dict[str, list[Route]] = {}
        for (path, _), rows in by_place(routes).items():
            self._rows.setdefault(path, []).extend(rows)
        self._by_path = {path: expected(rows).dialect for path, rows in self._rows.items() if not asks_header(rows)}
        self._varying = [(path.partition("{")[0], rows) for path, rows in self._rows.items() if "{" in path]
        self._by_prefix = {one.name: one for row in routes for one in (row.dialect, *row.also) if one.prefixed}

    def at(self, path: str, headers: Mapping[str, str]) -> Dialect:
        """That of the prefix, else that of the rows of `path`, else the operators'."""
        prefix = path[1:].partition("/")[0]
        known = self._by_prefix.get(prefix) or self._by_path.get(path)
        if known is not None:
            return known
        rows = self._rows.get(path) or next((some for start, some in self._varying if path.startswith(start)), None)
        return expected(by_header(rows, headers)).dialect if rows else OPS
