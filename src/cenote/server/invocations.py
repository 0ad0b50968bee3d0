"""`/invocations`: one address for every call, told apart by the fields of the body and by what the model is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput
from . import classify, openai, plugged, pooling, scoring
from .dialect import VLLM
from .route import CALL_ERRORS, Answer, Route
from .schemas import NotServed

if TYPE_CHECKING:
    from .door import Door

_KNOWN = "EmbeddingRequest, ClassificationRequest, RerankRequest, ScoreRequest, PoolingRequest"


class InvocationRequest(openai.EmbeddingRequest, kw_only=True):
    """Texts or conversations: embedded, else classified, else pooled, whatever the model can do first."""

    task: pooling.Task | None = None
    data: NotServed | msgspec.UnsetType = msgspec.UNSET


async def answer(door: Door, request: Request, body: InvocationRequest) -> Response:
    """Answer `POST /invocations` with inputs."""
    tasks = door.model(body.model).recipe.tasks
    if "embed" in tasks:
        return await openai.embeddings(door, request, body)
    if "classify" in tasks:
        return await classify.answer(door, request, body)
    known = pooling.PoolingRequest.__struct_fields__
    same = {name: getattr(body, name) for name in known if hasattr(body, name)}
    return await pooling.answer(door, request, pooling.PoolingRequest(**same))


async def answer_score(door: Door, request: Request, body: scoring.ScoreRequest) -> Response:
    """Answer `POST /invocations` with two sides to score, or with nothing that is known."""
    if scoring.sides_of(body) is None:
        raise BadInput(f"Cannot find suitable handler for request. Expected one of: [{_KNOWN}]")
    return await scoring.answer_score(door, request, body)


def _route(answer: Answer, request: type[msgspec.Struct], response: Any, *keys: str, binary: bool = False) -> Route:
    """One form of body."""
    return Route(
        "POST",
        "/invocations",
        answer,
        "Any call, told apart by its fields and by what the model is.",
        VLLM,
        keys=frozenset(keys),
        request=request,
        response=response,
        binary=binary,
        errors=CALL_ERRORS,
    )


_READINGS = (openai.EmbeddingResponse, classify.ClassificationResponse, pooling.PoolingResponse)

ROUTES = (
    _route(answer, InvocationRequest, _READINGS, "input", binary=True),
    _route(answer, InvocationRequest, _READINGS, "messages", binary=True),
    _route(pooling.answer, pooling.PoolingRequest, plugged.PluginResponse, "data"),
    _route(scoring.answer_rerank, scoring.RerankRequest, scoring.RerankResponse, "query", "documents"),
    _route(answer_score, scoring.ScoreRequest, scoring.ScoreResponse),
)
