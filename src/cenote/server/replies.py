"""Answers that hold arrays, in the form that a request asks for; and the first fields of every answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ..types import Outcome
from . import arrays, calls
from .schemas import ArrayFields, usage

JSON = "application/json"


def head(prefix: str, request: Request, model: str) -> dict[str, Any]:
    """`id`, `created` and `model`; the id is the request's own after `prefix`."""
    return {"id": f"{prefix}-{request.state.request_id}", "created": int(time.time()), "model": model}


async def rows(
    first: Mapping[str, Any], outcome: Outcome, body: ArrayFields, item: Literal["embedding", "pooling"], key: str
) -> Response:
    """One array per input, of one dimension or two, as JSON or as bytes.

    Args:
        first: What `head` gave.
        item: What each one is called in `object`.
        key: The field that holds it.
    """
    size = sum(row.nbytes for row in outcome.rows)
    return await calls.aside(size, _rows, first, outcome, body, item, key)


def _rows(first: Mapping[str, Any], outcome: Outcome, body: ArrayFields, item: str, key: str) -> Response:
    if body.encoding_format in ("bytes", "bytes_only"):
        return _octets(first, outcome, body)
    parts: list[Any] = (
        arrays.base64(outcome.rows, body.embed_dtype, body.endianness)
        if body.encoding_format == "base64"
        else list(arrays.numbers(outcome.rows))
    )
    data = [{"index": index, "object": item, key: part} for index, part in enumerate(parts)]
    return listed(first, data, outcome)


def listed(first: Mapping[str, Any], data: list[dict[str, Any]], outcome: Outcome) -> Response:
    """A list with one object per input, and what it used; numpy arrays are written as they are."""
    return as_json({**first, "object": "list", "data": data, "usage": usage(outcome.num_tokens)})


def as_json(answer: Any) -> Response:
    """`answer` as JSON; numpy arrays are written as they are."""
    return Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type=JSON)


def _octets(first: Mapping[str, Any], outcome: Outcome, body: ArrayFields) -> Response:
    content, places = arrays.joined(outcome.rows, body.embed_dtype, body.endianness)
    headers = {}
    if body.encoding_format == "bytes":
        counted = {"prompt_tokens": outcome.num_tokens, "total_tokens": outcome.num_tokens}
        headers["metadata"] = arrays.header_json({**first, "data": places, "usage": counted})
    return Response(content, headers=headers, media_type="application/octet-stream")
