"""`/pooling` with `data`: what an IO processor makes of it and of what the model says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from .. import plugged
from ..errors import BadInput, CenoteError
from ..io_plugins import TASK
from ..started import Part, Started
from . import calls, lengths, replies
from .notes import Notes

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door
    from .pooling import PoolingRequest


class PluginResponse(Struct, kw_only=True):
    """The answer of the server's IO processor, in a form of its own."""

    request_id: str
    created_at: int
    data: Any


def is_asked(body: PoolingRequest) -> bool:
    """Whether a request is one for an IO processor."""
    return body.task == TASK or (body.data is not msgspec.UNSET and bytes(body.data) != b"null")


async def answer(door: Door, request: Request, body: PoolingRequest, engine: Engine) -> Response:
    """Answer a request with `data`, or one for the task `plugin`."""
    plugin = plugged.served(door.registry.io_plugin(engine), "task" if body.data is msgspec.UNSET else "data")
    data = _data(body)
    length = lengths.of(body, engine.recipe.max_len, door.on_long)
    asked_as = f"pooling-{request.state.request_id}"
    with plugged.handled(plugin, asked_as) as request_id:
        prompts = await plugged.prompts_of(plugin, data, request_id)
        planned = plugged.plan(engine.recipe, plugin, prompts, None, True)
        submit = calls.submits(request, engine, length, body.priority)
        part = Part(range(len(planned.inputs)), submit(planned.task, planned.inputs, planned.params[0]))
        outcome = await calls.finish(request, Started([part]))
        answer = await plugged.answer_of(plugin, planned, outcome, engine.recipe, request_id)
    whole = {"request_id": asked_as, "created_at": int(time.time()), "data": answer}
    size = sum(row.nbytes for row in outcome.rows)
    content = await calls.aside(size, written, whole, "The IO processor's answer")
    headers = calls.timing_headers(request, outcome) | Notes.of(body).headers() | calls.model_headers(engine)
    return Response(content, headers=headers, media_type=replies.JSON)


def _data(body: PoolingRequest) -> Any:
    data = None if body.data is msgspec.UNSET else orjson.loads(bytes(body.data))
    if data is None:
        what, fix = "The request is one for a plugin and has no data.", "Send what the plugin takes as `data`."
        raise BadInput(what, fix=fix, param="data")
    if body.task not in (None, TASK):
        what = f"The request has `data` and task={body.task!r}."
        allowed = "The 'data' field is only supported for the 'plugin' pooling task."
        raise BadInput(what, allowed=allowed, param="task")
    if body.input is not msgspec.UNSET or body.messages is not None:
        raise BadInput("The request has both `data` and inputs.", fix="Send one of them.", param="data")
    return data


def written(answer: Any, called: str) -> bytes:
    """JSON of what a plugin made.

    Raises:
        CenoteError: It is nothing that JSON has.
    """
    try:
        return orjson.dumps(answer, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise CenoteError(
            f"{called} cannot be written as JSON: {error}.",
            allowed="It is made of dicts, lists, texts, numbers, arrays, dataclasses and pydantic models.",
        ) from error


def _plain(value: Any) -> Any:
    """What orjson does not know: models of pydantic, tensors, arrays that are not contiguous, structs."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "tolist"):
        return value.tolist()
    return msgspec.to_builtins(value)
