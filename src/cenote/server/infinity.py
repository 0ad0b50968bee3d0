"""The dialect of infinity: vectors, rankings, classes and names, on paths without a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ..config import OnLong
from ..errors import BadInput, NoInputs, UnsupportedTask
from ..tasks import classify, embed
from ..types import Length
from ..uses import score
from . import calls, openai, replies, scoring, tei
from .dialect import Dialect, Error
from .dialect import tell as tell_error
from .openai import EmbeddingRequest, EmbeddingResponse
from .route import CALL_ERRORS, Answer, Route
from .schemas import Usage, usage

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

INFINITY = Dialect("infinity", Error, tell_error, {"model_not_found": 400, "unsupported_task": 400})
_ANY_MODEL = "default/not-specified"
"""What its clients name where their caller named no model."""


class InfinityEmbeddingRequest(EmbeddingRequest, kw_only=True):
    """Texts or token ids to embed; `dimensions` of 0 are all, and longer texts are cut."""

    modality: Annotated[Literal["text", "image", "audio"], Meta(description="Only text is served.")] = "text"


class InfinityRerankRequest(Struct, kw_only=True):
    """A query, and documents to rank by it."""

    query: str
    documents: list[str]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    top_n: Annotated[int, Meta(ge=1, le=2**63 - 1, description="How many to give back; unset, all.")] | None = None
    return_documents: Annotated[bool, Meta(description="Give the documents back too.")] = False
    raw_scores: Annotated[bool, Meta(description="Leave out the activation of a cross-encoder.")] = False


class InfinityRanked(Struct, kw_only=True):
    """One document of a ranking; `index` is its place in the request."""

    relevance_score: float
    index: int
    document: str | None


class InfinityRerankResponse(Struct, kw_only=True):
    """Documents from best to worst."""

    id: str
    object: Literal["rerank"]
    created: int
    model: str
    results: list[InfinityRanked]
    usage: Usage


class InfinityClassifyRequest(Struct, kw_only=True):
    """Texts to classify."""

    input: list[str]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    raw_scores: Annotated[bool, Meta(description="Leave out the activation.")] = False


class InfinityClassifyResponse(Struct, kw_only=True):
    """Labels of each text, the highest score first."""

    id: str
    object: Literal["classify"]
    created: int
    model: str
    data: list[list[tei.Prediction]]
    usage: Usage


class InfinityStats(Struct, kw_only=True):
    """How busy a model is."""

    queue_fraction: float
    queue_absolute: int
    results_pending: int
    batch_size: int


class InfinityModel(Struct, kw_only=True):
    """A name that requests may use."""

    id: str
    stats: InfinityStats
    object: Literal["model"]
    owned_by: str
    created: int
    backend: str
    capabilities: list[str]


class InfinityModels(Struct, kw_only=True):
    """All of them."""

    data: list[InfinityModel]
    object: Literal["list"]


async def embeddings(door: Door, request: Request, body: InfinityEmbeddingRequest) -> Response:
    """Answer `POST /embeddings`."""
    if body.modality != "text":
        raise BadInput(
            f"modality={body.modality!r}.", allowed="No model here reads anything but text.", param="modality"
        )
    body.dimensions = body.dimensions or None
    body.model = _name(body.model)
    default: OnLong = "chunk" if door.model(body.model).recipe.chunks else "cut"
    return await openai.embeddings(door, request, body, on_long=door.on_long or default)


async def rerank(door: Door, request: Request, body: InfinityRerankRequest) -> Response:
    """Answer `POST /rerank` of infinity."""
    name = _name(body.model)
    raw = body.raw_scores and score.score_type(door.model(name).recipe) == "cross-encoder"
    asked = scoring.RerankRequest(
        query=body.query, documents=[*body.documents], model=name, use_activation=False if raw else None
    )
    done, documents = await scoring.reranked(door, request, asked, _length(door))
    results = [
        {
            "relevance_score": one.score,
            "index": one.index,
            "document": one.document if body.return_documents else None,
        }
        for one in score.ranking(done.scores, documents, body.top_n)
    ]
    head = replies.head("infinity", request, name or done.engine.name)
    answer = {**head, "object": "rerank", "results": results, "usage": usage(done.outcome.num_tokens)}
    response = await calls.aside(sum(map(len, documents)), replies.as_json, answer)
    replies.tell(response, done.headers)
    return response


async def classes(door: Door, request: Request, body: InfinityClassifyRequest) -> Response:
    """Answer `POST /classify` of infinity."""
    if not body.input:
        raise NoInputs("There are no texts to classify.", allowed="It takes one or more.", param="input")
    door.allow(len(body.input), "input")
    engine = door.model(_name(body.model))
    if classify.NAME not in engine.recipe.tasks:
        allowed = f"It can do {', '.join(engine.recipe.tasks)}."
        raise UnsupportedTask(f"{engine.name} is no classifier of texts.", allowed=allowed, param="model")
    params = classify.Params(use_activation=False if body.raw_scores else None)
    with calls.renaming({"input_tokens": "input"}):
        outcome = await calls.run(request, engine, classify.NAME, body.input, params, length=_length(door))
    labels = tei.labels_of(engine)

    def written() -> Response:
        head = replies.head("infinity", request, _name(body.model) or engine.name)
        data = [tei.predictions(row, labels) for row in np.asarray(outcome.rows)]
        return replies.as_json({**head, "object": "classify", "data": data, "usage": usage(outcome.num_tokens)})

    response = await calls.aside(sum(row.nbytes for row in outcome.rows), written)
    replies.tell(response, calls.timing_headers(request, outcome))
    return response


async def models(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /models`."""
    listed = [_told(door, engine, name) for engine in door.engines() for name in (engine.name, *engine.aliases)]
    return Response(msgspec.json.encode(InfinityModels(data=listed, object="list")), media_type=replies.JSON)


def _told(door: Door, engine: Engine, name: str) -> InfinityModel:
    now, machine = engine.snapshot(), door.registry.machine
    tasks = engine.recipe.tasks
    can = {"embed": embed.NAME in tasks, "classify": classify.NAME in tasks, "rerank": score.can_score(engine.recipe)}
    return InfinityModel(
        id=name,
        stats=InfinityStats(
            queue_fraction=now.waiting_tokens / max(1, machine.max_queue_tokens),
            queue_absolute=now.waiting_seqs,
            results_pending=now.open_calls,
            batch_size=machine.max_batch_seqs,
        ),
        object="model",
        owned_by="cenote",
        created=door.created,
        backend="torch",
        capabilities=[able for able, yes in can.items() if yes],
    )


def _name(given: str | None) -> str | None:
    return None if given == _ANY_MODEL else given


def _length(door: Door) -> Length:
    """What happens to long texts: they are cut, where the server does not say otherwise."""
    return Length(door.on_long or "cut")


def _route(
    path: str, answer: Answer, summary: str, request: type[Struct], response: Any, *keys: str, **more: Any
) -> Route:
    return Route(
        "POST",
        path,
        answer,
        summary,
        INFINITY,
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=CALL_ERRORS,
        **more,
    )


def _rerank(*keys: str) -> Route:
    summary = "Documents from best to worst; without the prefix where `raw_scores` is given."
    request, response = InfinityRerankRequest, InfinityRerankResponse
    return _route("/rerank", rerank, summary, request, response, *keys, bare=bool(keys))


def _classify(*keys: str) -> Route:
    summary = "Labels with their scores; without the prefix where `raw_scores` is given."
    request, response = InfinityClassifyRequest, InfinityClassifyResponse
    return _route("/classify", classes, summary, request, response, *keys, bare=bool(keys))


_SUMMARY = "Vectors of texts, on the path without a version."

ROUTES = (
    _route("/embeddings", embeddings, _SUMMARY, InfinityEmbeddingRequest, EmbeddingResponse, binary=True),
    _rerank("documents", "raw_scores"),
    _rerank(),
    _classify("raw_scores"),
    _classify(),
    Route(
        "GET",
        "/models",
        models,
        "Names that requests may use, and how busy they are.",
        INFINITY,
        response=InfinityModels,
    ),
)
