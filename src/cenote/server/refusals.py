"""How failures go over the wire: one table from an error's kind to a status; a dialect has its own body for it.

A message never carries a traceback, a file path of this machine or the address of an object.
"""

from __future__ import annotations

import logging
import math
import re
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..errors import CenoteError, Overloaded
from .dialect import OPS, Dialect, Failure

log = logging.getLogger(__name__)

# Not in the registry of statuses: the client closed its connection. Nobody reads the answer; logs and counters do.
CLIENT_CLOSED = 499

STATUS_BY_KIND: dict[str, tuple[int, str]] = {
    "bad_input": (400, "BadRequestError"),
    "no_inputs": (400, "BadRequestError"),
    "too_long": (400, "BadRequestError"),
    "unsupported_task": (501, "NotImplementedError"),
    "model_not_found": (404, "NotFoundError"),
    "overloaded": (429, "RateLimitError"),
    "unavailable": (503, "ServiceUnavailableError"),
    "cancelled": (CLIENT_CLOSED, "ClientClosedRequestError"),
    "deadline": (504, "TimeoutError"),
    "forward_failed": (500, "InternalServerError"),
    "not_finite": (500, "InternalServerError"),
}
"""Kind of an error -> status and `type` of the reference; kinds that are missing are ours to repair: 500."""

KIND_BY_STATUS: dict[int, str] = {
    401: "no_key",
    404: "not_found",
    405: "no_method",
    413: "too_large",
    415: "bad_encoding",
    501: "not_installed",
}
"""Status of a refusal -> its kind; all others are `bad_body`."""

_PATH = re.compile(r"(?<![\w:/.~-])(?:[A-Za-z]:\\|~?/)(?:[^\s/\\'\"`:,;<>()]+[/\\])+[^\s'\"`:,;<>()]*")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHOULD_RETRY = {429: "true", 503: "true", 500: "false", 501: "false", 504: "false"}


class Refusal(HTTPException):
    """A request refused before it reaches an engine.

    Args:
        status: HTTP status.
        message: What happened, what is allowed, what to do.
        param: The field at fault.
        headers: Headers of the answer.
        dialect: Whose request it was, where the body alone tells.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param = param
        self.dialect = dialect


def answer(error: Exception, dialect: Dialect = OPS, request_id: str = "") -> Response:
    """The response for `error`, as `dialect` tells it."""
    dialect = getattr(error, "dialect", None) or dialect
    failure = _failure(error, dialect, request_id)
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, Overloaded):
        headers.update(_retry_headers(error.retry_after_s))
    elif failure.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.update(_retry_headers(1.0))
    if failure.status in _SHOULD_RETRY:
        headers["x-should-retry"] = _SHOULD_RETRY[failure.status]
    body = msgspec.json.encode(dialect.tell(failure))
    return Response(body, status_code=failure.status, headers=headers, media_type="application/json")


def scrub(message: str) -> str:
    """`message` without file paths and object addresses."""
    return _ADDRESS.sub("", _PATH.sub("<path>", message))


def _failure(error: Exception, dialect: Dialect, request_id: str) -> Failure:
    kind = error.kind if isinstance(error, CenoteError) else ""
    status, name = STATUS_BY_KIND.get(kind, (500, "InternalServerError"))
    param = getattr(error, "param", None)
    if isinstance(error, CenoteError):
        # A name that was asked for may look like a path.
        message = str(error) if kind == "model_not_found" else scrub(str(error))
    elif isinstance(error, HTTPException):
        kind = KIND_BY_STATUS.get(error.status_code, "bad_body")
        status, name, message = error.status_code, HTTPStatus(error.status_code).phrase, error.detail
    else:
        log.error("request %s failed", request_id, exc_info=error)
        kind, message = "internal", f"Internal error; the server's log has it under request {request_id}."
    return Failure(kind, dialect.statuses.get(kind, status), name, message, param, request_id)


def _retry_headers(retry_after_s: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(retry_after_s))), "retry-after-ms": str(math.ceil(retry_after_s * 1e3))}


def validation(message: str, path: str, dialect: Dialect | None = None) -> Refusal:
    """The refusal of a body that does not fit its schema; `path` is where, such as `input[3]`."""
    where = f" at `{path}`" if path else ""
    return Refusal(400, f"1 validation error: {message}{where}.", param=path or None, dialect=dialect)


def too_large(max_body_bytes: int) -> Refusal:
    """The refusal of a body, as sent or unpacked, over the limit."""
    return Refusal(
        413,
        f"The body is larger than {max_body_bytes} bytes. Send fewer inputs per request, or raise max_body_bytes.",
        headers={"connection": "close"},
    )
