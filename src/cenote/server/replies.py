"""Answers that hold arrays, in the form that a request asks for; and the first fields of every answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from ..types import Outcome
from . import arrays, calls
from .schemas import ArrayFields, usage

JSON = "application/json"

_AT_ONCE: Final = 64
"""Entries of a list that are encoded at one go: with 384 numbers each that takes half a millisecond."""

Told: TypeAlias = Sequence[Mapping[str, Any]] | None
"""What is told of each row beside it."""


def head(prefix: str, request: Request, model: str) -> dict[str, Any]:
    """`id`, `created` and `model`; the id is the request's own after `prefix`."""
    return {"id": f"{prefix}-{request.state.request_id}", "created": int(time.time()), "model": model}


async def rows(
    first: Mapping[str, Any],
    outcome: Outcome,
    body: ArrayFields,
    item: Literal["embedding", "pooling"],
    key: str,
    told: Told = None,
) -> Response:
    """One array per input, of one dimension or two, as JSON or as bytes.

    Args:
        first: What `head` gave.
        item: What each one is called in `object`.
        key: The field that holds it.
        told: What is told of each beside it, if anything is.
    """
    given = outcome.rows
    size = given.nbytes if isinstance(given, np.ndarray) else sum(row.nbytes for row in given)
    return await calls.aside(size, _rows, first, outcome, body, item, key, told)


def _rows(first: Mapping[str, Any], outcome: Outcome, body: ArrayFields, item: str, key: str, told: Told) -> Response:
    if body.encoding_format in ("bytes", "bytes_only"):
        return _octets(first, outcome, body, told)
    parts: list[Any] = (
        arrays.base64(outcome.rows, body.embed_dtype, body.endianness)
        if body.encoding_format == "base64"
        else arrays.numbers(outcome.rows)
    )
    data = [{"index": index, "object": item, key: part} for index, part in enumerate(parts)]
    return listed(first, data, outcome, told)


def listed(first: Mapping[str, Any], data: list[dict[str, Any]], outcome: Outcome, told: Told = None) -> Response:
    """A list with one object per input, and what it used; numpy arrays are written as they are."""
    used: dict[str, Any] = {**usage(outcome.num_tokens), **_used(outcome, told)}
    return as_json({**first, "object": "list", "data": _with(data, told), "usage": used})


def _with(data: list[dict[str, Any]], told: Told) -> list[dict[str, Any]]:
    return data if told is None else [{**one, **more} for one, more in zip(data, told, strict=True)]


def _used(outcome: Outcome, told: Told) -> dict[str, int]:
    return {} if told is None else {"cut_tokens": outcome.num_cut_tokens, "pieces": outcome.num_pieces}


def as_json(answer: Any) -> Response:
    """`answer` as JSON; numpy arrays are written as they are."""
    if isinstance(answer, dict):
        answer = {key: _in_pieces(value) for key, value in answer.items()}
    return Response(_dumped(_in_pieces(answer)), media_type=JSON)


def _in_pieces(value: Any) -> Any:
    """A long list encoded already, other threads let in between: orjson holds the interpreter until it is done."""
    if not isinstance(value, list) or len(value) <= _AT_ONCE:
        return value
    pieces = []
    for start in range(0, len(value), _AT_ONCE):
        pieces.append(_dumped(value[start : start + _AT_ONCE])[1:-1])
        time.sleep(0)
    return orjson.Fragment(b"[%b]" % b",".join(pieces))


def _dumped(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def tell(response: Response, headers: Mapping[str, str]) -> None:
    """Add `headers`, in lower case, none of which `response` has: Starlette's own way looks for each among all."""
    response.raw_headers += [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]


def _octets(first: Mapping[str, Any], outcome: Outcome, body: ArrayFields, told: Told) -> Response:
    content, places = arrays.joined(outcome.rows, body.embed_dtype, body.endianness)
    headers = {}
    if body.encoding_format == "bytes":
        counted = {"prompt_tokens": outcome.num_tokens, "total_tokens": outcome.num_tokens, **_used(outcome, told)}
        headers["metadata"] = arrays.header_json({**first, "data": _with(places, told), "usage": counted})
    return Response(content, headers=headers, media_type="application/octet-stream")
