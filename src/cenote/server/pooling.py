"""`/pooling`: a model read as any of its tasks, one array per input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from .. import options
from ..answers import sparse_vectors
from ..errors import BadInput
from ..outputs import PoolingParams
from ..pooler import renamed_task
from ..tasks import TASKS, embed, sparse, token_embed
from ..types import Outcome
from . import calls, lengths, plugged, prompts, replies, spans
from .dialect import VLLM
from .notes import Notes
from .route import CALL_ERRORS, Route
from .schemas import ArrayFields, Read, Usage

if TYPE_CHECKING:
    from ..engine import Engine
    from ..recipe import Recipe
    from .door import Door
    from .prompts import Prompts

Task: TypeAlias = Annotated[
    str,
    Meta(
        description="embed, classify, token_embed, token_classify, sparse, plugin, or a task that an installed plugin "
        "brings; unset, the model's default one. Works with a warning: embedding, score, reward, encode."
    ),
]


class PoolingRequest(ArrayFields, kw_only=True):
    """Texts, pairs, token ids or conversations to read."""

    task: Task | None = None
    options: (
        Annotated[dict[str, Any], Meta(description="Options of a task that a plugin brings, by their names.")] | None
    ) = None
    pool_factor: (
        Annotated[float, Meta(description="Token vectors of documents: keep about one of so many, each a mean.")] | None
    ) = None
    top_k: (
        Annotated[int, Meta(ge=1, le=2**31, description="Keep this many dimensions of a sparse vector, the largest.")]
        | None
    ) = None
    threshold: (
        Annotated[float, Meta(ge=0, description="Keep dimensions of a sparse vector whose value is larger than this.")]
        | None
    ) = None
    data: (
        Annotated[
            msgspec.Raw,
            Meta(description="What the server's IO processor takes, in place of inputs; it shapes the answer too."),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET


class SparseVector(Struct, kw_only=True):
    """What is not zero of one input's vector, by dimension; `tokens` where dimensions are words."""

    indices: list[int]
    values: list[float]
    tokens: list[str] | None


class Pooled(Read, kw_only=True):
    """The array of one input: numbers, rows of numbers where there is one per token, base64, or a sparse vector."""

    index: int
    object: Literal["pooling"]
    data: list[float | list[float]] | str | SparseVector


class PoolingResponse(Struct, kw_only=True):
    """Arrays in input order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


async def answer(door: Door, request: Request, body: PoolingRequest) -> Response:
    """Answer `POST /pooling`."""
    with calls.renaming(prompts.INNER_NAMES):
        return await _answer(door, request, body)


async def _answer(door: Door, request: Request, body: PoolingRequest) -> Response:
    engine = calls.begin(door, request, body)
    if plugged.is_asked(body):
        return await plugged.answer(door, request, body, engine)
    notes = Notes.of(body)
    task = _task(engine.recipe, body, notes)
    if body.spans is not None and task != embed.NAME:
        what = f"The request has spans, and is read as {task!r}."
        raise BadInput(what, allowed="Spans have vectors of the task 'embed'.", param="spans")
    length = lengths.of_arrays(body, task, engine.recipe, door.on_long)
    given = await prompts.read(door, engine, body, notes)
    params = _params(task, body, given, notes)
    if task == "sparse":
        _check_sparse(body)
    told: replies.Told
    if body.spans is not None:
        outcome, told = await spans.read(request, engine, body, given.inputs, params, length)
    else:
        how: dict[str, Any] = {"length": length, "priority": body.priority}
        outcome = await calls.run(request, engine, task, given.inputs, params, **how)
        told = lengths.each_told(body, outcome)
    head = replies.head("pooling", request, body.model or engine.name)
    if task == "sparse":
        size = _size(outcome)
        response = await calls.aside(size, lambda: replies.listed(head, _sparse(outcome, engine), outcome, told))
    else:
        response = await replies.rows(head, outcome, body, "pooling", "data", told)
    replies.tell(response, calls.timing_headers(request, outcome) | notes.headers() | calls.model_headers(engine))
    return response


def _task(recipe: Recipe, body: PoolingRequest, notes: Notes) -> str:
    if body.task is None:
        return recipe.default_task
    task, warning = renamed_task(body.task, recipe)
    if warning:
        notes.warnings.append(warning)
    if task not in recipe.tasks:
        allowed = f"Supported tasks: {recipe.tasks}."
        raise BadInput(f"Unsupported task: {task!r} with {recipe.name}.", allowed=allowed, param="task")
    return task


def _params(task: str, body: PoolingRequest, given: Prompts, notes: Notes) -> Any:
    more: dict[str, Any] = {"prompt_name": given.prompt_name, "prompt": given.prompt, "input_type": given.input_type}
    if task not in TASKS:
        # What was not asked for is no option; a conversation has no prompt, and says so by an empty one.
        more = {name: value for name, value in more.items() if value}
        more |= body.options or {}
    elif body.options:
        allowed = "Its options are fields of the request."
        raise BadInput(f"The request has options for the task {task!r}.", allowed=allowed, param="options")
    elif task not in (embed.NAME, token_embed.NAME, sparse.NAME):
        del more["input_type"]
    for name in ("pool_factor", "top_k", "threshold", "adapter"):
        if getattr(body, name) is not None:
            more[name] = getattr(body, name)
    asked = PoolingParams(notes.activation(body), body.dimensions, pooling=body.pooling)
    (params,) = options.task_params(task, asked, len(given.inputs), given.add_special_tokens, more)
    return params


def _check_sparse(body: PoolingRequest) -> None:
    if body.encoding_format not in (None, "float"):
        what = f"encoding_format={body.encoding_format!r} for sparse vectors."
        raise BadInput(what, allowed="They are given as float only.", param="encoding_format")


def _sparse(outcome: Outcome, engine: Engine) -> list[dict[str, Any]]:
    assert engine.recipe.sparse is not None
    vectors = sparse_vectors(outcome.rows, engine.recipe.sparse, engine.tokenizer)
    return [
        {"index": at, "object": "pooling", "data": {"indices": v.indices, "values": v.values, "tokens": v.tokens}}
        for at, v in enumerate(vectors)
    ]


def _size(outcome: Outcome) -> int:
    return sum(row.nbytes for row in outcome.rows)


ROUTES = (
    Route(
        "POST",
        "/pooling",
        answer,
        "The model read as any of its tasks: one array per input.",
        VLLM,
        request=PoolingRequest,
        response=(PoolingResponse, plugged.PluginResponse),
        binary=True,
        errors=CALL_ERRORS,
    ),
)
