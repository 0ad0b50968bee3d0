"""`/uses/{name}`: what plugins make of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import orjson
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from .. import options, uses
from ..started import Started, parts_of
from . import calls, lengths, replies
from .dialect import VLLM
from .notes import Notes
from .plugged import written
from .route import CALL_ERRORS, Route
from .schemas import CallFields, Usage, usage

if TYPE_CHECKING:
    from .door import Door


class UseRequest(CallFields, kw_only=True):
    """What the use takes, and its options."""

    input: Annotated[msgspec.Raw, Meta(description="What the use takes; any JSON.")]
    options: Annotated[dict[str, Any], Meta(description="Options of the use, by their names.")] | None = None


class UseResponse(Struct, kw_only=True):
    """The result of the use, in a form of its own."""

    id: str
    created: int
    model: str
    data: Any
    usage: Usage


async def answer(door: Door, request: Request, body: UseRequest) -> Response:
    """Answer `POST /uses/{name}`."""
    engine = calls.begin(door, request, body)
    recipe, tokenizer = engine.recipe, engine.tokenizer
    length = lengths.of(body, recipe.max_len, door.on_long)
    use = uses.find(request.path_params["name"], recipe)
    asked = options.use_options(use, body.options or {})
    given = orjson.loads(bytes(body.input))
    planned = await calls.aside(len(bytes(body.input)), uses.plan, use, recipe, tokenizer, given, asked)
    submit = calls.submits(request, engine, length, body.priority)
    outcome = await calls.finish(request, Started.of(parts_of(planned.groups, submit)))
    size = sum(row.nbytes for row in outcome.rows)
    data = await calls.aside(size, uses.finish, use, recipe, tokenizer, planned, outcome)
    head = replies.head("use", request, body.model or engine.name)
    whole = {**head, "data": data, "usage": usage(outcome.num_tokens)}
    content = await calls.aside(size, written, whole, f"The answer of the use {use.NAME!r}")
    headers = calls.timing_headers(request, outcome) | Notes.of(body).headers() | calls.model_headers(engine)
    return Response(content, headers=headers, media_type=replies.JSON)


ROUTES = (
    Route(
        "POST",
        "/uses/{name}",
        answer,
        "What a plugin makes of tasks: its own answer.",
        VLLM,
        request=UseRequest,
        response=UseResponse,
        errors=CALL_ERRORS,
    ),
)
