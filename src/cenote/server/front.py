"""What every request passes, whatever its route: its id, the key check, and the counters."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from pathlib import Path
from random import getrandbits

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config import ServerSettings
from ..errors import ConfigError
from . import refusals
from .asked import NamedHeaders
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
        keys: What clients must send one of; none lets everybody in.
        open_places: Methods and paths that answer without a key.
    """

    def __init__(
        self, app: ASGIApp, door: Door, dialects: Dialects, keys: Iterable[str], open_places: Iterable[tuple[str, str]]
    ) -> None:
        self._app, self._door, self._dialects = app, door, dialects
        self._open_places = frozenset(open_places)
        self._key_digests = [_digest(key.encode()) for key in keys]
        self._root = door.settings.root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._root and scope["path"].startswith(self._root + "/"):
            scope = {**scope, "path": scope["path"][len(self._root) :]}
        arrived, traffic = time.perf_counter(), self._door.traffic
        headers = NamedHeaders(scope)
        given = headers.get("x-request-id", "")
        state = scope.setdefault("state", {})
        state.update(
            request_id=given if _ID.fullmatch(given) else _new_id(),
            dialect=self._dialects.at(scope["path"], headers),
            arrived=arrived,
            headers=headers,
            path=_UNMATCHED,
            status=499,
        )

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                if _ID.fullmatch(state["request_id"]):
                    message["headers"] = [*message["headers"], (b"x-request-id", state["request_id"].encode("ascii"))]
            await send(message)

        traffic.in_flight += 1
        try:
            passes = self._may_pass(scope["method"], scope["path"], headers)
            app: ASGIApp = self._app if passes else _unauthorized(state["dialect"], state["request_id"])
            await app(scope, receive, marked)
        finally:
            traffic.in_flight -= 1
            traffic.ended(state["path"], scope["method"], state["status"], time.perf_counter() - arrived)

    def _may_pass(self, method: str, path: str, headers: Headers) -> bool:
        asked = "GET" if method == "HEAD" else method
        if not self._key_digests or (asked, path) in self._open_places:
            return True
        digests = [_digest(key.encode("latin-1")) for key in _keys(headers)]
        # Every key is compared, so that the time tells nothing about which one came near.
        return sum(hmac.compare_digest(one, known) for one in digests for known in self._key_digests) > 0


def _new_id() -> str:
    """32 hexadecimal digits that no other request has.

    No secret, so not of `uuid4`, which asks the system for each one and lets other threads go first meanwhile.
    """
    return f"{getrandbits(128):032x}"


def known_keys(settings: ServerSettings) -> tuple[str, ...]:
    """The keys that clients may send: those of the settings, and those of the file.

    Raises:
        ConfigError: The file cannot be read or has none, or a key is empty.
    """
    keys, path = settings.api_key, settings.api_key_file
    if path is not None:
        try:
            lines = [line.partition("#")[0].strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The file of keys {path} cannot be read: {error}.", param="api_key_file") from error
        if not any(lines):
            raise ConfigError(f"The file of keys {path} has no key.", allowed="One key a line.", param="api_key_file")
        keys = (*keys, *filter(None, lines))
    if not all(key.strip() for key in keys):
        raise ConfigError("A key is empty, so that no key would do.", fix="Leave it out.", param="api_key")
    return keys


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
