"""The OpenAI dialect, with the fields that the reference adds: `/v1/embeddings` and `/v1/models`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from .. import inputs
from ..errors import BadInput
from ..tasks import embed
from ..types import Input, Outcome
from . import arrays, calls, lengths
from .bodies import OFF_LOOP_BYTES
from .refusals import Refusal
from .schemas import CacheSalt, Int64, NotServed, Padding, TextsOrIds, TruncateTokens, TruncationSide, Usage, usage

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

_TEMPLATE_FIELDS = ("messages", "chat_template", "chat_template_kwargs")
# What the field `input` is called further in.
_INNER_NAMES = ("prompts", "prompt_token_ids")
_MEDIA_FIELDS = ("mm_processor_kwargs", "media_io_kwargs", "prompt_embeds")


class EmbeddingRequest(Struct, kw_only=True):
    """Texts or token ids to embed."""

    input: TextsOrIds | msgspec.UnsetType = msgspec.UNSET
    model: str | None = None
    user: str | None = None
    dimensions: Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None = None
    encoding_format: arrays.EncodingFormat | None = None
    embed_dtype: arrays.EmbedDtype = "float32"
    endianness: arrays.Endianness = "native"
    use_activation: Annotated[bool, Meta(description="Whether to normalise; unset, the model's own way.")] | None = None
    normalize: (
        Annotated[bool, Meta(description="Old name of use_activation.", extra_json_schema={"deprecated": True})] | None
    ) = None
    truncate_prompt_tokens: TruncateTokens | None = None
    truncation_side: TruncationSide | None = None
    padding: Padding | None = None
    add_special_tokens: bool = True
    request_id: Annotated[str, Meta(description="The response's id ends with it.")] | None = None
    priority: Annotated[Int64, Meta(description="Above 0, requests of priority 0 and below go first.")] = 0
    cache_salt: CacheSalt | None = None
    input_type: Annotated[str, Meta(description="Name of a prompt; one the model lacks is passed over.")] | None = None
    prompt_name: Annotated[str, Meta(description="Name of one of the model's prompts.")] | None = None
    prompt: Annotated[str, Meta(description="Text put before each input.")] | None = None
    messages: NotServed | msgspec.UnsetType = msgspec.UNSET
    chat_template: NotServed | msgspec.UnsetType = msgspec.UNSET
    chat_template_kwargs: NotServed | msgspec.UnsetType = msgspec.UNSET
    mm_processor_kwargs: NotServed | msgspec.UnsetType = msgspec.UNSET
    media_io_kwargs: NotServed | msgspec.UnsetType = msgspec.UNSET
    prompt_embeds: NotServed | msgspec.UnsetType = msgspec.UNSET


class Embedding(Struct, kw_only=True):
    """The vector of one input; a string where the encoding is base64."""

    index: int
    object: Literal["embedding"]
    embedding: list[float] | str


class EmbeddingResponse(Struct, kw_only=True):
    """Vectors in input order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Embedding]
    usage: Usage


class Model(Struct, kw_only=True):
    """A name that requests may use."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int
    permission: list[dict[str, Any]]


class ModelList(Struct, kw_only=True):
    """All models and their aliases."""

    object: Literal["list"]
    data: list[Model]


async def embeddings(door: Door, request: Request, body: EmbeddingRequest) -> Response:
    """Answer `POST /v1/embeddings`."""
    try:
        return await _embeddings(door, request, body)
    except BadInput as error:
        if error.param in _INNER_NAMES:
            error.param = "input"
        raise


async def _embeddings(door: Door, request: Request, body: EmbeddingRequest) -> Response:
    _check_fields(body)
    engine = door.registry.get(body.model)
    length = lengths.from_reference(
        body.truncate_prompt_tokens, body.truncation_side, engine.recipe.max_len, door.on_long
    )
    params, notes = _params(engine, body)
    parsed = _inputs(body.input)
    lane: Literal["interactive", "bulk"] = "bulk" if body.priority > 0 else "interactive"
    if body.request_id:
        request.state.request_id = body.request_id
    outcome = await calls.run(request, engine, embed.NAME, parsed, params, length=length, lane=lane)
    outcome.raise_first()
    response = await _encoded(body, body.model or engine.name, request.state.request_id, outcome)
    response.headers.update(calls.timing_headers(request, outcome) | notes)
    return response


async def models(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /v1/models`."""
    return Response(msgspec.json.encode(ModelList(object="list", data=_models(door))), media_type="application/json")


async def model(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /v1/models/{id}`; names may have slashes."""
    name = request.path_params["id"]
    found = next((entry for entry in _models(door) if entry.id == name), None)
    if found is None:
        raise Refusal(404, f"The model `{name}` does not exist.", param="model")
    return Response(msgspec.json.encode(found), media_type="application/json")


def _models(door: Door) -> list[Model]:
    return [
        Model(
            id=name,
            object="model",
            created=door.created,
            owned_by="cenote",
            root=engine.name,
            parent=None,
            max_model_len=engine.recipe.max_len,
            permission=[],
        )
        for engine in door.engines()
        for name in (engine.name, *engine.aliases)
    ]


def _check_fields(body: EmbeddingRequest) -> None:
    given = [name for name in _TEMPLATE_FIELDS if _has(getattr(body, name))]
    if given:
        raise BadInput(
            f"The request has {', '.join(given)}, and chat input is not served.",
            allowed="`input` takes a text, token ids, or a list of either.",
            fix="Write the conversation as one text, in the form that the model's card gives.",
            param=given[0],
        )
    given = [name for name in _MEDIA_FIELDS if _has(getattr(body, name))]
    if given:
        raise BadInput(
            f"The request has {', '.join(given)}, which would change the result and is not served.",
            allowed="`input` takes a text, token ids, or a list of either.",
            param=given[0],
        )


def _has(value: msgspec.Raw | msgspec.UnsetType) -> bool:
    return value is not msgspec.UNSET and bytes(value) not in (b"null", b"{}", b"[]", b'""')


def _inputs(given: Any) -> list[Input]:
    if given is msgspec.UNSET:
        raise BadInput("The field `input` is missing.", fix="Send a text or a list of texts as `input`.", param="input")
    return inputs.parse(given)


def _params(engine: Engine, body: EmbeddingRequest) -> tuple[embed.Params, dict[str, str]]:
    """The options of the task, and headers about what was passed over or has a newer name."""
    notes: dict[str, str] = {}
    ignored: list[str] = []
    prompt_name = body.prompt_name
    if body.input_type is not None and prompt_name is None and body.prompt is None:
        if body.input_type in engine.recipe.prompts:
            prompt_name = body.input_type
        else:
            ignored.append("input_type")
    normalize = body.use_activation
    if body.normalize is not None:
        notes["warning"] = '299 - "normalize is the old name of use_activation"'
        normalize = body.normalize if normalize is None else normalize
    if body.padding == "max_length":
        ignored.append("padding")
    if ignored:
        notes["x-ignored-fields"] = ", ".join(ignored)
    params = embed.Params(
        normalize=normalize,
        dimensions=body.dimensions,
        prompt_name=prompt_name,
        prompt=body.prompt,
        add_special_tokens=body.add_special_tokens,
    )
    return params, notes


async def _encoded(body: EmbeddingRequest, model: str, request_id: str, outcome: Outcome) -> Response:
    small = sum(row.nbytes for row in outcome.rows) < OFF_LOOP_BYTES
    if small:
        return _encode(body, model, request_id, outcome)
    return await asyncio.to_thread(_encode, body, model, request_id, outcome)


def _encode(body: EmbeddingRequest, model: str, request_id: str, outcome: Outcome) -> Response:
    head = {"id": f"embd-{request_id}", "created": int(time.time()), "model": model}
    if body.encoding_format in ("bytes", "bytes_only"):
        return _octets(body, head, outcome)
    parts: list[Any] = (
        arrays.base64(outcome.rows, body.embed_dtype, body.endianness)
        if body.encoding_format == "base64"
        else list(arrays.numbers(outcome.rows))
    )
    data = [{"index": index, "object": "embedding", "embedding": part} for index, part in enumerate(parts)]
    answer = {**head, "object": "list", "data": data, "usage": usage(outcome.num_tokens)}
    return Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _octets(body: EmbeddingRequest, head: dict[str, Any], outcome: Outcome) -> Response:
    content, places = arrays.joined(outcome.rows, body.embed_dtype, body.endianness)
    headers = {}
    if body.encoding_format == "bytes":
        counted = {"prompt_tokens": outcome.num_tokens, "total_tokens": outcome.num_tokens}
        headers["metadata"] = arrays.header_json({**head, "data": places, "usage": counted})
    return Response(content, headers=headers, media_type="application/octet-stream")
