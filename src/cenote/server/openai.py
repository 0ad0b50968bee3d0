"""The OpenAI dialect, with the fields that the reference adds: `/v1/embeddings` and `/v1/models`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ..config import OnLong
from ..errors import UnsupportedTask
from ..tasks import embed
from . import calls, lengths, prompts, replies, spans
from .dialect import OPENAI, VLLM
from .notes import Notes
from .refusals import Refusal
from .route import CALL_ERRORS, Route
from .schemas import ArrayFields, Read, Usage

if TYPE_CHECKING:
    from .door import Door
    from .prompts import Prompts


class EmbeddingRequest(ArrayFields, kw_only=True):
    """Texts, token ids or conversations to embed."""


class Embedding(Read, kw_only=True):
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
    fingerprint: (
        Annotated[str, Meta(description="Stands for all that decides the vectors; keep it with an index.")] | None
    )


class ModelList(Struct, kw_only=True):
    """All models and their aliases."""

    object: Literal["list"]
    data: list[Model]


async def embeddings(door: Door, request: Request, body: EmbeddingRequest, on_long: OnLong | None = None) -> Response:
    """Answer `POST /v1/embeddings`; `on_long` is what happens to long texts, None as the server says."""
    with calls.renaming(prompts.INNER_NAMES):
        return await _embeddings(door, request, body, on_long or door.on_long)


async def _embeddings(door: Door, request: Request, body: EmbeddingRequest, on_long: OnLong | None) -> Response:
    engine = calls.begin(door, request, body)
    if embed.NAME not in engine.recipe.tasks:
        raise UnsupportedTask(
            f"The model does not support Embeddings API: {engine.name} is no embedder.",
            allowed=f"Supported tasks: {engine.recipe.tasks}.",
            param="model",
        )
    length = lengths.of_arrays(body, embed.NAME, engine.recipe, on_long, engine.recipe.max_embed_len)
    notes = Notes.of(body)
    given = await prompts.read(door, engine, body, notes)
    given = await door.token_ids.read(engine, given, as_they_are=body.add_special_tokens is False)
    params = _params(body, given, notes)
    told: replies.Told
    if body.spans is not None:
        outcome, told = await spans.read(request, engine, body, given.inputs, params, length)
    else:
        how: dict[str, Any] = {"length": length, "priority": body.priority}
        outcome = await calls.run(request, engine, embed.NAME, given.inputs, params, **how)
        told = lengths.each_told(body, outcome)
    head = replies.head("embd", request, body.model or engine.name)
    response = await replies.rows(head, outcome, body, "embedding", "embedding", told)
    replies.tell(response, calls.timing_headers(request, outcome) | notes.headers() | calls.model_headers(engine))
    return response


async def models(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /v1/models`."""
    return Response(msgspec.json.encode(ModelList(object="list", data=await _models(door))), media_type=replies.JSON)


async def model(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /v1/models/{id}`; names may have slashes."""
    name = request.path_params["id"]
    found = next((entry for entry in await _models(door) if entry.id == name), None)
    if found is None:
        raise Refusal(404, f"The model `{name}` does not exist.", param="model")
    return Response(msgspec.json.encode(found), media_type=replies.JSON)


async def _models(door: Door) -> list[Model]:
    fingerprints = await asyncio.gather(*(calls.fingerprint(engine) for engine in door.engines()))
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
            fingerprint=fingerprint,
        )
        for engine, fingerprint in zip(door.engines(), fingerprints, strict=True)
        for name in (engine.name, *engine.aliases)
    ]


def _params(body: EmbeddingRequest, given: Prompts, notes: Notes) -> embed.Params:
    return embed.Params(
        normalize=notes.activation(body),
        dimensions=body.dimensions,
        pooling=body.pooling,
        adapter=body.adapter,
        prompt_name=given.prompt_name,
        input_type=given.input_type,
        prompt=given.prompt,
        add_special_tokens=given.add_special_tokens,
    )


ROUTES = (
    Route(
        "POST",
        "/v1/embeddings",
        embeddings,
        "Vectors of texts or token ids.",
        OPENAI,
        (VLLM,),
        request=EmbeddingRequest,
        response=EmbeddingResponse,
        binary=True,
        errors=CALL_ERRORS,
    ),
    Route("GET", "/v1/models", models, "Names that requests may use.", OPENAI, (VLLM,), response=ModelList),
    Route(
        "GET",
        "/v1/models/{id:path}",
        model,
        "One of those names.",
        OPENAI,
        (VLLM,),
        response=Model,
        errors=(404,),
    ),
)
