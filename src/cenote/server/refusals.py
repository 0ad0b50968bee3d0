"""How failures go over the wire: one table from an error's kind to a status, one function per error body.

A message never carries a traceback, a file path of this machine or the address of an object.
"""

from __future__ import annotations

import logging
import math
import re
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..errors import CenoteError, Overloaded

log = logging.getLogger(__name__)

# Not in the registry of statuses: the client closed its connection. Nobody reads the answer; logs and counters do.
CLIENT_CLOSED = 499

STATUS_BY_KIND: dict[str, tuple[int, str]] = {
    "bad_input": (400, "BadRequestError"),
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
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.param = param


def answer(error: Exception, request_id: str = "") -> Response:
    """The response for `error`, in the shape of the OpenAI and reference routes."""
    status, kind, message, param = _parts(error, request_id)
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, Overloaded):
        headers.update(_retry_headers(error.retry_after_s))
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.update(_retry_headers(1.0))
    if status in _SHOULD_RETRY:
        headers["x-should-retry"] = _SHOULD_RETRY[status]
    return Response(
        orjson.dumps(body, default=repr), status_code=status, headers=headers, media_type="application/json"
    )


def scrub(message: str) -> str:
    """`message` without file paths and object addresses."""
    return _ADDRESS.sub("", _PATH.sub("<path>", message))


def _parts(error: Exception, request_id: str) -> tuple[int, str, str, str | None]:
    if isinstance(error, CenoteError):
        status, kind = STATUS_BY_KIND.get(error.kind, (500, "InternalServerError"))
        message = str(error) if status == HTTPStatus.NOT_FOUND else scrub(str(error))
        return status, kind, message, error.param
    if isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code).phrase
        return error.status_code, phrase, error.detail, getattr(error, "param", None)
    log.error("request %s failed", request_id, exc_info=error)
    return 500, "InternalServerError", f"Internal error; the server's log has it under request {request_id}.", None


def _retry_headers(retry_after_s: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(retry_after_s))), "retry-after-ms": str(math.ceil(retry_after_s * 1e3))}


def validation(message: str, path: str) -> Refusal:
    """The refusal of a body that does not fit its schema; `path` is where, such as `input[3]`."""
    where = f" at `{path}`" if path else ""
    return Refusal(400, f"1 validation error: {message}{where}.", param=path or None)


def schema() -> dict[str, Any]:
    """JSON Schema of the body that `answer` writes."""
    detail = {
        "type": "object",
        "required": ["message", "type", "param", "code"],
        "properties": {
            "message": {"type": "string"},
            "type": {"type": "string"},
            "param": {"type": ["string", "null"]},
            "code": {"type": "integer"},
        },
    }
    return {"type": "object", "required": ["error"], "properties": {"error": detail}}
