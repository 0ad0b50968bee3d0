"""Which dialect a server answers, found by asking; nothing is guessed from names or versions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import aiohttp
import msgspec
from msgspec import Struct

from ..errors import ConfigError, Unavailable
from .client import NO_CONNECTION, Asked, Client, Sample
from .dialects import DIALECTS, Dialect


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


def candidates(url: str, name: str) -> list[tuple[Dialect, str]]:
    """The dialects that may be meant, each with the whole URL of its requests.

    Args:
        url: Of the server, or of the route itself.
        name: Of the dialect, or `auto`.

    Raises:
        ConfigError: It is no URL of HTTP, or holds a password.
    """
    parts = _parts(url)
    dialects = list(DIALECTS.values()) if name == "auto" else [DIALECTS[name]]
    base = parts.path.rstrip("/")
    # The longest path that fits: /v1/rerank ends in /rerank too.
    named = max((p for d in DIALECTS.values() for p in d.paths if base.endswith(p)), key=len, default=None)
    chosen = [
        (dialect, base + dialect.paths[0] if named is None else base)
        for dialect in dialects
        if named is None or named in dialect.paths or name != "auto"
    ]
    return [(dialect, urlunsplit(parts._replace(path=path, fragment=""))) for dialect, path in chosen]


def _parts(url: str) -> SplitResult:
    allowed = "It begins with http:// or https://, a host and perhaps a port; a key is given by --api-key."
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that cannot be
        is_one = False
    if not is_one:
        raise ConfigError(f"{url} is no URL of a server.", allowed=allowed, param="URL")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("The URL holds a name or a password.", allowed=allowed, param="URL")  # never in a report
    return parts


async def settle(asked: Asked, url: str, name: str, model: str | None) -> Asked:
    """`asked`, of the first dialect that the server answers to one request as it should.

    Args:
        model: The name of the model; None asks the server for its first one, and sends none where it does not say.

    Raises:
        ConfigError: `url` is none.
        Unavailable: No dialect was answered; the message has what came of each.
    """
    failures = []
    for dialect, whole in candidates(url, name):
        tried = replace(asked, url=whole, dialect=dialect)
        async with Client(tried, 1) as client:
            named = model if model is not None else await _first_model(client, url, dialect)
            fields: Mapping[str, Any] = asked.fields if named is None else {"model": named, **asked.fields}
            tried = replace(tried, fields=fields)
        async with Client(tried, 1) as client:
            sample = await client.send(time.perf_counter())
        if not sample.error:
            return tried
        failures.append(_told(dialect, whole, sample))
        if sample.error == NO_CONNECTION:  # nor would there be one for the next dialect
            break
    raise Unavailable(
        f"{url} does not answer a first request: {' '.join(failures)}",
        fix="See that the server runs, that URL, --dialect and --model fit, and whether it wants an --api-key.",
    )


def _told(dialect: Dialect, url: str, sample: Sample) -> str:
    said = sample.said if sample.said.endswith((".", "!", "?")) else f"{sample.said}."
    return f"{dialect.name} at {urlsplit(url).path}: {sample.error}: {said}"


async def _first_model(client: Client, url: str, dialect: Dialect) -> str | None:
    if dialect.name not in ("openai", "rerank"):
        return None
    parts = urlsplit(url)
    try:
        status, body = await client.get(f"{parts.scheme}://{parts.netloc}/v1/models")
        return msgspec.json.decode(body, type=_Models).data[0].id if status == 200 else None
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, IndexError):
        return None  # a server need not have such a list
