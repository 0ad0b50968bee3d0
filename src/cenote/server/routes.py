"""The table of all routes: the application and its OpenAPI document are both built from it.

Where several rows share a path, the first one whose `keys` are all in the body answers; the last one takes the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from . import classify, invocations, openai, ops, pooling, scoring, vllm
from .door import Door

Answer: TypeAlias = Callable[[Door, Request, Any], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One row of the table.

    Args:
        method: HTTP method.
        path: Path, with `{name}` or `{name:path}` for a part that varies.
        answer: Answers a request; gets the decoded body, or None where the row has none.
        summary: One line for the OpenAPI document.
        dialect: Whose route it is; `ops` for what only operators use.
        prefixes: Dialects under whose prefix it is reachable too.
        keys: Fields that a body must have for this row, where rows share a path.
        request: Type of the body, if there is one.
        response: Type of a JSON answer, or several that it may be, or the media type of another one, or None for an
            empty one.
        binary: Whether it answers with raw arrays too, where the body asks for them.
        open: Whether it answers without a key although keys are set.
        errors: Statuses that it may answer with, beyond those of every route.
    """

    method: Literal["GET", "POST"]
    path: str
    answer: Answer
    summary: str
    dialect: Literal["openai", "vllm", "ops"]
    prefixes: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    request: type[msgspec.Struct] | None = None
    response: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | str | None = None
    binary: bool = False
    open: bool = False
    errors: tuple[int, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The path alone, then under each prefix."""
        return (self.path, *(f"/{prefix}{self.path}" for prefix in self.prefixes))

    @property
    def answers(self) -> tuple[type[msgspec.Struct], ...]:
        """Types of its JSON answers; () where it gives another one."""
        if isinstance(self.response, tuple):
            return self.response
        return (self.response,) if isinstance(self.response, type) else ()

    @cached_property
    def types(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        """Fields that the body may have, with their types."""
        return () if self.request is None else msgspec.structs.fields(self.request)

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of those fields."""
        return frozenset(field.encode_name for field in self.types)


_REFERENCE = ("openai", "vllm")
_VLLM = ("vllm",)
_CALL = (400, 404, 413, 429, 500, 501, 503, 504)
_LOOKUP = (400, 404, 413, 503)
_READINGS = (openai.EmbeddingResponse, classify.ClassificationResponse, pooling.PoolingResponse)


def _scoring(path: str, *, rerank: bool) -> Route:
    """A path that scores or ranks; the reference has several names for each."""
    answer: Answer = scoring.answer_rerank if rerank else scoring.answer_score
    return Route(
        "POST",
        path,
        answer,
        "Documents from best to worst for a query." if rerank else "How well texts fit together.",
        "vllm",
        _VLLM,
        request=scoring.RerankRequest if rerank else scoring.ScoreRequest,
        response=scoring.RerankResponse if rerank else scoring.ScoreResponse,
        errors=_CALL,
    )


def _invocation(
    answer: Answer, request: type[msgspec.Struct], response: Any, *keys: str, binary: bool = False
) -> Route:
    """One form of body that `/invocations` takes."""
    return Route(
        "POST",
        "/invocations",
        answer,
        "Any call, told apart by its fields and by what the model is.",
        "vllm",
        _VLLM,
        frozenset(keys),
        request=request,
        response=response,
        binary=binary,
        errors=_CALL,
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/embeddings",
        openai.embeddings,
        "Vectors of texts or token ids.",
        "openai",
        _REFERENCE,
        request=openai.EmbeddingRequest,
        response=openai.EmbeddingResponse,
        binary=True,
        errors=_CALL,
    ),
    Route(
        "GET",
        "/v1/models",
        openai.models,
        "Names that requests may use.",
        "openai",
        _REFERENCE,
        response=openai.ModelList,
    ),
    Route(
        "GET",
        "/v1/models/{id:path}",
        openai.model,
        "One of those names.",
        "openai",
        _REFERENCE,
        response=openai.Model,
        errors=(404,),
    ),
    Route(
        "POST",
        "/classify",
        classify.answer,
        "Labels of texts, with their values.",
        "vllm",
        _VLLM,
        request=classify.ClassificationRequest,
        response=classify.ClassificationResponse,
        errors=_CALL,
    ),
    _scoring("/score", rerank=False),
    _scoring("/v1/score", rerank=False),
    _scoring("/rerank", rerank=True),
    _scoring("/v1/rerank", rerank=True),
    _scoring("/v2/rerank", rerank=True),
    Route(
        "POST",
        "/pooling",
        pooling.answer,
        "The model read as any of its tasks: one array per input.",
        "vllm",
        _VLLM,
        request=pooling.PoolingRequest,
        response=pooling.PoolingResponse,
        binary=True,
        errors=_CALL,
    ),
    _invocation(invocations.answer, invocations.InvocationRequest, _READINGS, "input", binary=True),
    _invocation(invocations.answer, invocations.InvocationRequest, _READINGS, "messages", binary=True),
    _invocation(scoring.answer_rerank, scoring.RerankRequest, scoring.RerankResponse, "query", "documents"),
    _invocation(invocations.answer_score, scoring.ScoreRequest, scoring.ScoreResponse),
    Route(
        "POST",
        "/tokenize",
        vllm.tokenize,
        "Token ids of a text or a conversation.",
        "vllm",
        _VLLM,
        request=vllm.TokenizeRequest,
        response=vllm.TokenizeResponse,
        errors=_LOOKUP,
    ),
    Route(
        "POST",
        "/detokenize",
        vllm.detokenize,
        "The text of token ids.",
        "vllm",
        _VLLM,
        request=vllm.DetokenizeRequest,
        response=vllm.DetokenizeResponse,
        errors=_LOOKUP,
    ),
    Route("GET", "/health", ops.ready, "200 while ready, else 503.", "ops", open=True, errors=(503,)),
    Route("GET", "/health/ready", ops.ready, "200 while new requests are taken.", "ops", open=True, errors=(503,)),
    Route("GET", "/health/live", ops.live, "200 until a restart is needed.", "ops", open=True, errors=(503,)),
    Route("GET", "/ping", ops.ready, "As /health.", "ops", open=True, errors=(503,)),
    Route("POST", "/ping", ops.ready, "As /health.", "ops", open=True, errors=(503,)),
    Route("GET", "/version", ops.version, "Version of Cenote.", "ops", response=ops.Version),
    Route("GET", "/load", ops.load, "Requests that are being answered.", "ops", response=ops.Load),
    Route("GET", "/info", ops.info, "What was decided about each model, and why.", "ops", response=ops.Info),
    Route("GET", "/metrics", ops.metrics, "Prometheus metrics.", "ops", response="text/plain"),
    Route("GET", "/openapi.json", ops.openapi, "This document.", "ops", response="application/json"),
    Route("GET", "/docs", ops.docs, "This document, to read and try.", "ops", response="text/html"),
)
