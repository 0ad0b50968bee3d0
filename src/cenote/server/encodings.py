"""gzip on the wire: bodies that come packed, within a bound, and answers for clients that take them packed."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from .refusals import Refusal, too_large

_GZIP_WINDOW: Final = 31  # zlib's way to say: 15 bits, with the head and the checksum of gzip
_MOST_MEMBERS: Final = 1000
_PIECE_BYTES: Final = 64 * 1024
_LEVEL: Final = 1  # numbers as text give way a lot at once and little more for ten times the work
_PROBE_BYTES: Final = 4096
_WORTH: Final = 0.7  # base64 of floats packs to 0.76, digits to less than a half
# Packing takes five times as long as encoding did: beyond this the model needs the core more.
_MOST_BYTES: Final = 1024 * 1024
_OFF_LOOP_BYTES: Final = 64 * 1024  # packing costs more than copying, so it leaves the loop sooner


def encoding_of(request: Request) -> str:
    """How the body of a request is packed: `gzip` or "".

    Raises:
        Refusal: 415, in a way that is not known.
    """
    name = request.headers.get("content-encoding", "").strip().lower()
    if name in ("", "identity"):
        return ""
    if name in ("gzip", "x-gzip"):
        return "gzip"
    raise Refusal(
        415, f"Content-Encoding {name[:40]!r} is not known; send gzip or none.", headers={"accept-encoding": "gzip"}
    )


def unpacked(raw: bytes, max_bytes: int) -> bytes:
    """A body that came as gzip, in one member or several; never more than `max_bytes` of it are unpacked.

    Raises:
        Refusal: 413 if there is more; 400 if it is no gzip, cut off, or in too many members.
    """
    parts: list[bytes] = []
    start = num_bytes = 0
    for _ in range(_MOST_MEMBERS):
        unpacking = zlib.decompressobj(_GZIP_WINDOW)
        while not unpacking.eof:
            # In pieces, since what follows a member is copied.
            piece = raw[start : start + _PIECE_BYTES]
            if not piece:
                raise Refusal(400, "The gzip body is cut off.")
            try:
                parts.append(unpacking.decompress(piece, max_bytes + 1 - num_bytes))
            except zlib.error as error:
                raise Refusal(400, f"The body is not gzip, though its Content-Encoding says so: {error}.") from None
            num_bytes += len(parts[-1])
            if num_bytes > max_bytes:
                raise too_large(max_bytes)
            start += len(piece) - len(unpacking.unused_data)
        if start == len(raw):
            return b"".join(parts)
    raise Refusal(400, f"The gzip body has more than {_MOST_MEMBERS} members; send it as one.")


def is_packable(response: Response, min_bytes: int) -> bool:
    """Whether the body of `response` is of a size to be packed; with 0 for `min_bytes` none is."""
    return 0 < min_bytes <= len(response.body) <= _MOST_BYTES


async def pack(request: Request, response: Response) -> None:
    """Pack the body of `response`, which is packable, where the client takes that and it is worth it."""
    body = bytes(response.body)
    response.headers["vary"] = "accept-encoding"
    if not _takes_gzip(request.headers.get("accept-encoding", "")):
        return
    packed = _packed(body) if len(body) < _OFF_LOOP_BYTES else await asyncio.to_thread(_packed, body)
    if packed is not None:
        response.body = packed
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(packed))


def _packed(body: bytes) -> bytes | None:
    probe = body[len(body) // 2 :][:_PROBE_BYTES]
    if len(zlib.compress(probe, _LEVEL)) > _WORTH * len(probe):
        return None
    return gzip.compress(body, _LEVEL, mtime=0)


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "").rstrip("0.") not in ("q=", "Q=")
    return False
