"""Request bodies: size, media type, strict JSON, and which of several dialects a shared path is for."""

from __future__ import annotations

import asyncio
import re
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request

from ..errors import Cancelled
from . import encodings
from .dialect import Dialect
from .refusals import Refusal, too_large, validation
from .route import Route, by_keys

T = TypeVar("T", bound=msgspec.Struct)

OFF_LOOP_BYTES = 256 * 1024
"""Bodies from this size on are decoded and encoded in a thread, so that short requests do not wait behind them."""

_MAX_NAMED = 20
_WHERE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


class _Key:
    """A key of the body; two with the same name are not equal, so that a repeated field can be seen."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def _dec_hook(kind: type, value: Any) -> Any:
    return kind(value)


_TOP_LEVEL = msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=_dec_hook)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body, checked.

    Args:
        route: The row of the route table that it is for.
        body: An instance of the row's request type.
        ignored: Fields of the body that the row does not know.
    """

    route: Route
    body: Any
    ignored: tuple[str, ...]


async def read(request: Request, rows: Sequence[Route], max_body_bytes: int) -> Decoded:
    """Read the body of `request` and decode it for the first of `rows` that it fits.

    Raises:
        Refusal: 413 over the size limit; 415 for an unknown encoding; 400 for the wrong media type, broken JSON or a
            wrong field.
        Cancelled: The client went away while sending.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and (media_type or not rows[-1].dialect.untyped):
        raise Refusal(
            400, f"Unsupported Media Type: Only 'application/json' is allowed; this request says {media_type!r}."
        )
    packed = encodings.encoding_of(request)
    raw = await _bytes(request, max_body_bytes)
    if packed:
        raw = await asyncio.to_thread(encodings.unpacked, raw, max_body_bytes)
    if len(raw) >= OFF_LOOP_BYTES:
        return await asyncio.to_thread(decode, raw, rows)
    return decode(raw, rows)


def decode(raw: bytes, rows: Sequence[Route]) -> Decoded:
    """Decode `raw` for the first of `rows` whose keys it has; the last row is for everything else.

    Raises:
        Refusal: 400, with the field at fault.
    """
    route = rows[-1]
    try:
        names = [key.name for key in _TOP_LEVEL.decode(raw)]
        seen = set(names)
        if len(seen) < len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise validation(f"the field {twice[:100]!r} stands more than once", twice[:100])
        route = by_keys(rows, seen)
        assert route.request is not None, "only routes with a body are decoded"
        body = _decoder(route.request).decode(raw)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), route.types, route.dialect) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        lone = " A lone surrogate such as \\ud800 is no character." if b"\\ud" in raw.lower() else ""
        raise Refusal(400, f"The body is not JSON: {error}.{lone} Send one JSON object in UTF-8.") from None
    except RecursionError:
        raise Refusal(400, "The body is nested too deeply. Send a flat JSON object.") from None
    ignored = () if route.fields.issuperset(seen) else tuple(name for name in names if name not in route.fields)
    return Decoded(route, body, ignored)


def converted(given: Mapping[str, Any], kind: type[T], where: str = "") -> T:
    """A part of a body as an instance of `kind`; fields that it does not know are passed over.

    Raises:
        Refusal: 400, with the field at fault, below `where`.
    """
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), msgspec.structs.fields(kind), None, where) from None


def named(fields: Sequence[str]) -> str:
    """Names of fields as the value of a header, whatever characters they have."""
    return ", ".join(quote(name[:64], safe="") for name in fields[:_MAX_NAMED])


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


def _wrong_field(
    message: str, types: Sequence[msgspec.structs.FieldInfo], dialect: Dialect | None, inside: str = ""
) -> Refusal:
    where = _WHERE.search(message)
    path = where["path"] if where else ""
    allowed = _choices(next((field.type for field in types if field.encode_name == path), None))
    told = _WHERE.sub("", message) + (f", allowed are {', '.join(allowed)}" if allowed else "")
    return validation(told, ".".join(filter(None, (inside, path))), dialect)


def _choices(hint: Any) -> tuple[str, ...]:
    """The literal values somewhere in a type hint."""
    if typing.get_origin(hint) is typing.Literal:
        return tuple(map(str, typing.get_args(hint)))
    return tuple(choice for part in typing.get_args(hint) for choice in _choices(part))


async def _bytes(request: Request, max_body_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_body_bytes:
        raise too_large(max_body_bytes)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        # Not `request.stream()`, a generator, which takes twice as long for a body of one piece.
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("The client closed the connection while sending the body.")
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > max_body_bytes:
            raise too_large(max_body_bytes)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
