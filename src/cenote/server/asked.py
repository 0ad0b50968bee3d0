"""A request as endpoints get it, whose headers are looked up by name at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope


class NamedHeaders(Headers):
    """Headers of a request; of those with one name the first counts.

    Starlette's own goes through all of them, and decodes, each time it is asked for one; a request asks six times.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        pairs: Iterable[tuple[bytes, bytes]] = reversed(scope["headers"])
        self._by_name = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}

    def __getitem__(self, key: str) -> str:
        return self._by_name[key.lower()]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of the header called `key`, in any case of letters."""
        return self._by_name.get(key.lower(), default)


class Asked(Request):
    """A request that came through `Front`."""

    @property
    def headers(self) -> Headers:
        """Those that `Front` has read."""
        headers: Headers = self.scope["state"]["headers"]
        return headers
