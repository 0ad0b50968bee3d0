"""What every request passes, whatever its route: its id, the key check, and the counters."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
import uuid
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import refusals
from .dialect import Dialect
from .door import Door
from .refusals import Refusal
from .route import Dialects

_ID = re.compile(r"[\x21-\x7e]{1,256}")
_UNMATCHED = "unmatched"


class Front:
    """The outermost ASGI application.

    Args:
        app: The routes.
        door: What they share.
        dialects: Which dialect a request speaks.
        open_paths: Paths that answer without a key.
    """

    def __init__(self, app: ASGIApp, door: Door, dialects: Dialects, open_paths: Iterable[str]) -> None:
        self._app, self._door, self._dialects = app, door, dialects
        self._open_paths = frozenset(open_paths)
        self._key_digests = [_digest(key.encode()) for key in door.settings.api_key]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived, traffic = time.perf_counter(), self._door.traffic
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        state = scope.setdefault("state", {})
        state.update(
            request_id=given if _ID.fullmatch(given) else uuid.uuid4().hex,
            dialect=self._dialects.at(scope["path"], headers),
            arrived=arrived,
            path=_UNMATCHED,
            status=499,
        )

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                if _ID.fullmatch(state["request_id"]):
                    MutableHeaders(scope=message)["x-request-id"] = state["request_id"]
            await send(message)

        traffic.in_flight += 1
        try:
            passes = self._may_pass(scope["path"], headers)
            app: ASGIApp = self._app if passes else _unauthorized(state["dialect"], state["request_id"])
            await app(scope, receive, marked)
        finally:
            traffic.in_flight -= 1
            traffic.ended(state["path"], scope["method"], state["status"], time.perf_counter() - arrived)

    def _may_pass(self, path: str, headers: Headers) -> bool:
        if not self._key_digests or path in self._open_paths:
            return True
        digests = [_digest(key.encode("latin-1")) for key in _keys(headers)]
        # Every key is compared, so that the time tells nothing about which one came near.
        return sum(hmac.compare_digest(one, known) for one in digests for known in self._key_digests) > 0


def _keys(headers: Headers) -> tuple[str, str]:
    """The keys of a request: `Authorization: Bearer KEY` or `Authorization: KEY`, and `x-api-key: KEY`."""
    authorization = headers.get("authorization", "").strip()
    scheme, _, rest = authorization.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else authorization, headers.get("x-api-key", "").strip()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _unauthorized(dialect: Dialect, request_id: str) -> ASGIApp:
    return refusals.answer(
        Refusal(
            401,
            "No valid API key. Send one as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
            headers={"www-authenticate": "Bearer"},
        ),
        dialect,
        request_id,
    )
