"""The dialect of Jina: vectors, late chunking, vectors of tokens, and rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput, UnsupportedTask
from ..tasks import token_embed
from ..types import Length
from . import arrays, calls, replies, scoring, vectors
from .dialect import Dialect, Failure
from .notes import Notes
from .route import CALL_ERRORS, Route

if TYPE_CHECKING:
    from .door import Door

_CODES = {
    "no_key": "AUTH_INVALID_API_KEY",
    "model_not_found": "INPUT_MODEL_NOT_FOUND",
    "too_long": "INPUT_TOKEN_LIMIT_EXCEEDED",
    "not_found": "RESOURCE_NOT_FOUND",
    "overloaded": "RATE_CONCURRENCY_LIMIT_EXCEEDED",
    "unavailable": "SERVICE_UNAVAILABLE",
    "deadline": "SERVICE_TIMEOUT",
    **dict.fromkeys(("forward_failed", "not_finite", "internal"), "INTERNAL_ERROR"),
}
"""Kind of a failure -> its code; all others are `INPUT_INVALID`."""


class JinaError(Struct, kw_only=True):
    """An error as Jina's clients read it."""

    detail: str
    code: str
    request_id: str


def tell(failure: Failure) -> JinaError:
    """The body of an error."""
    code = _CODES.get(failure.kind, "INPUT_INVALID")
    return JinaError(detail=failure.message, code=code, request_id=failure.request_id)


JINA = Dialect("jina", JinaError, tell, {"model_not_found": 400, "unsupported_task": 400})

JinaForm: TypeAlias = Literal["float", "base64", "binary", "ubinary"]


class JinaEmbeddingRequest(Struct, kw_only=True):
    """Texts to embed."""

    input: scoring.Texts
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    task: (
        Annotated[
            str,
            Meta(
                description="What the texts are, such as `retrieval.query`: chooses a prompt, an adapter or a route; "
                "where none fits there is no prompt, and a warning."
            ),
        ]
        | None
    ) = None
    dimensions: Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None = None
    late_chunking: Annotated[bool, Meta(description="The texts are chunks of one document, read as a whole.")] = False
    truncate: (
        Annotated[bool, Meta(description="Cut longer texts, or refuse them; unset, as `--on-long` says.")] | None
    ) = None
    normalized: (
        Annotated[bool, Meta(description="Whether vectors have unit length; unset, as the model says.")] | None
    ) = None
    embedding_type: (
        Annotated[
            JinaForm | Annotated[list[JinaForm], Meta(min_length=1)],
            Meta(description="Numbers, base64 of float32, or one bit a number; a list gives an object with each."),
        ]
        | None
    ) = None
    return_multivector: Annotated[bool, Meta(description="A vector for each token, as numbers.")] = False


class JinaForms(Struct, kw_only=True, rename={"float_": "float"}):
    """One vector in each form that was asked for."""

    float_: list[float] | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    binary: list[int] | UnsetType = UNSET
    ubinary: list[int] | UnsetType = UNSET


class JinaEmbedding(Struct, kw_only=True):
    """The vector of one text in `embedding`, or those of its tokens in `embeddings`."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str | JinaForms | UnsetType = UNSET
    embeddings: list[list[float]] | UnsetType = UNSET


class TotalUsage(Struct, kw_only=True):
    """Tokens of the texts after cutting, special tokens included."""

    total_tokens: int
    prompt_tokens: int


class JinaEmbeddingResponse(Struct, kw_only=True):
    """Vectors in input order."""

    model: str
    object: Literal["list"]
    usage: TotalUsage
    data: list[JinaEmbedding]


class JinaRerankRequest(Struct, kw_only=True):
    """A query, and documents to rank by it."""

    query: scoring.Text
    documents: scoring.Texts
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    top_n: Annotated[int, Meta(ge=0, le=2**63 - 1, description="How many to give back; unset or 0, all.")] | None = None
    return_documents: Annotated[bool, Meta(description="Whether results have their documents.")] = True
    truncate: (
        Annotated[bool, Meta(description="Cut longer pairs, or refuse them; unset, as `--on-long` says.")] | None
    ) = None


async def embeddings(door: Door, request: Request, body: JinaEmbeddingRequest) -> Response:
    """Answer `POST /v1/embeddings` of Jina."""
    with calls.renaming({"input_type": "task", "input_tokens": "input", "spans": "input", "prompts": "input"}):
        return await _embeddings(door, request, body)


async def _embeddings(door: Door, request: Request, body: JinaEmbeddingRequest) -> Response:
    door.allow_listed(body.input, "input")
    texts, notes = scoring.texts(body.input, "input"), Notes()
    if body.return_multivector:
        return await _tokens(door, request, body, texts, notes)
    engine = vectors.embedder(door, body.model)
    params = vectors.params_of(
        engine, body.task, notes, field="task", dimensions=body.dimensions, normalize=body.normalized
    )
    if body.late_chunking:
        notes.ignored += [] if body.truncate is None else ["truncate"]
        found = await vectors.late_chunked(door, request, engine, [texts], params)
    else:
        found = await vectors.embedded(
            door, request, engine, texts, params, length_of(door, body.truncate), said=body.truncate is not None
        )
    given = body.embedding_type or "float"
    forms = await found.in_forms([given] if isinstance(given, str) else given, notes.warnings)
    parts = forms[given] if isinstance(given, str) else vectors.by_input(forms)
    return await _listed(request, found, body, notes, "embedding", parts)


async def _tokens(door: Door, request: Request, body: JinaEmbeddingRequest, texts: list[str], notes: Notes) -> Response:
    if body.late_chunking or body.embedding_type not in (None, "float"):
        other = "late_chunking" if body.late_chunking else "embedding_type"
        raise BadInput(
            f"The request has return_multivector and {other}.",
            allowed="Vectors of tokens are given as numbers, for each text alone.",
            param=other,
        )
    engine = door.model(body.model)
    if token_embed.NAME not in engine.recipe.tasks:
        allowed = f"It can do {', '.join(engine.recipe.tasks)}."
        raise UnsupportedTask(f"{engine.name} gives no vectors of tokens.", allowed=allowed, param="return_multivector")
    params = vectors.params_of(
        engine,
        body.task,
        notes,
        token_embed.Params,
        field="task",
        dimensions=body.dimensions,
        normalize=body.normalized,
    )
    length = length_of(door, body.truncate)
    outcome = await calls.run(request, engine, token_embed.NAME, texts, params, length=length)
    found = vectors.Vectors(engine, params, outcome)
    return await _listed(request, found, body, notes, "embeddings", arrays.numbers(outcome.rows))


async def _listed(
    request: Request, found: vectors.Vectors, body: JinaEmbeddingRequest, notes: Notes, key: str, parts: Any
) -> Response:
    used = found.outcome.num_tokens
    answer = {
        "model": body.model or found.engine.name,
        "object": "list",
        "usage": {"total_tokens": used, "prompt_tokens": used},
        "data": [{"object": "embedding", "index": index, key: part} for index, part in enumerate(parts)],
    }
    response = await calls.aside(found.num_bytes, replies.as_json, answer)
    replies.tell(response, found.headers(request, notes))
    return response


def length_of(door: Door, truncate: bool | None) -> Length:
    """What happens to long texts: they are refused, where neither request nor server says otherwise."""
    return Length(door.on_long or "refuse") if truncate is None else Length("cut" if truncate else "refuse")


async def rerank(door: Door, request: Request, body: JinaRerankRequest) -> Response:
    """Answer `POST /v1/rerank` of Jina."""
    same = {name: getattr(body, name) for name in ("query", "documents", "model", "top_n", "return_documents")}
    asked = scoring.RerankRequest(**same)
    return await scoring.answer_rerank(door, request, asked, length_of(door, body.truncate))


def _embeddings_route(*keys: str) -> Route:
    """Vectors, on the path of OpenAI where a body has these keys, which only Jina knows."""
    return Route(
        "POST",
        "/v1/embeddings",
        embeddings,
        "Vectors of texts; without the prefix where `task`, `late_chunking` or `embedding_type` is given.",
        JINA,
        bare=bool(keys),
        keys=frozenset(keys),
        request=JinaEmbeddingRequest,
        response=JinaEmbeddingResponse,
        errors=CALL_ERRORS,
    )


ROUTES = (
    _embeddings_route("task"),
    _embeddings_route("late_chunking"),
    _embeddings_route("embedding_type"),
    _embeddings_route(),
    Route(
        "POST",
        "/v1/rerank",
        rerank,
        "Documents from best to worst for a query.",
        JINA,
        bare=False,
        request=JinaRerankRequest,
        response=scoring.RerankResponse,
        errors=CALL_ERRORS,
    ),
)
