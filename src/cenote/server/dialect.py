"""What a dialect is: its name, which is its prefix, and how it tells a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request, before it takes the form of a dialect.

    Args:
        kind: `kind` of a `CenoteError`; for what never reached an engine one of `refusals.KIND_BY_STATUS`.
        status: HTTP status of the answer.
        name: What the reference calls it, such as `BadRequestError`.
        message: What happened, what is allowed, what to do.
        param: The field at fault.
        request_id: The id that the answer's header has too.
    """

    kind: str
    status: int
    name: str
    message: str
    param: str | None
    request_id: str


@dataclass(frozen=True)
class Dialect:
    """One dialect of HTTP.

    Args:
        name: Its name; all its paths are reachable under `/<name>` too.
        error: Type of the body of its errors.
        tell: Fills that body.
        statuses: Kind of a failure -> HTTP status, where the dialect has another one than `refusals` gives.
        prefixed: False for what only operators use, which has no prefix.
        untyped: Whether bodies may come without a `content-type`, since clients of it send none.
    """

    name: str
    error: type[Struct]
    tell: Callable[[Failure], Struct]
    statuses: Mapping[str, int] = field(default_factory=dict)
    prefixed: bool = True
    untyped: bool = False


class ErrorDetail(Struct, kw_only=True):
    """What went wrong; `code` is the status, `param` the field at fault."""

    message: str
    type: str
    param: str | None
    code: int


class Error(Struct, kw_only=True):
    """An error as OpenAI's clients and those of the reference read it."""

    error: ErrorDetail


def tell(failure: Failure) -> Error:
    """The body of an error where a dialect has no other."""
    return Error(
        error=ErrorDetail(message=failure.message, type=failure.name, param=failure.param, code=failure.status)
    )


OPENAI = Dialect("openai", Error, tell)
VLLM = Dialect("vllm", Error, tell)
OPS = Dialect("ops", Error, tell, prefixed=False)
