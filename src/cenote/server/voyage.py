"""The dialect of Voyage: vectors, vectors of chunks in their document, and rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput, NoInputs
from ..types import Length
from ..uses import score
from . import arrays, calls, replies, scoring, vectors
from .dialect import Dialect, Failure
from .notes import Notes
from .route import CALL_ERRORS, Answer, Route
from .schemas import NotServed

if TYPE_CHECKING:
    from .door import Door


class VoyageError(Struct, kw_only=True):
    """An error as Voyage's clients read it."""

    detail: str


def tell(failure: Failure) -> VoyageError:
    """The body of an error."""
    return VoyageError(detail=failure.message)


VOYAGE = Dialect("voyage", VoyageError, tell, {"model_not_found": 400, "unsupported_task": 400}, untyped=True)

Texts: TypeAlias = str | list[str]


class VectorFields(Struct, kw_only=True):
    """How vectors are made, and in which form they are given."""

    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    input_type: (
        Annotated[Literal["query", "document"], Meta(description="Chooses a prompt, an adapter or a route.")] | None
    ) = None
    output_dimension: (
        Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None
    ) = None
    output_dtype: (
        Annotated[vectors.Form, Meta(description="Numbers, one byte a number, or one bit a number; unset, float.")]
        | None
    ) = None
    encoding_format: (
        Annotated[Literal["base64"], Meta(description="Give the bytes of each vector as base64.")] | None
    ) = None


class VoyageEmbeddingRequest(VectorFields, kw_only=True):
    """Texts to embed."""

    input: Texts
    truncation: (
        Annotated[bool, Meta(description="Cut longer texts, or refuse them; unset, as `--on-long`, else cut.")] | None
    ) = None


class VoyageContextRequest(VectorFields, kw_only=True):
    """Documents in chunks, each chunk to be embedded as part of its document."""

    inputs: Annotated[list[list[str]], Meta(description="The chunks of each document.")]
    enable_auto_chunking: Annotated[bool, Meta(description="Refused where it is true.")] | None = None
    chunk_size: NotServed | UnsetType = UNSET
    chunk_overlap: NotServed | UnsetType = UNSET


class VoyageEmbedding(Struct, kw_only=True):
    """The vector of one text; a string where base64 was asked for."""

    object: Literal["embedding"]
    embedding: list[float] | str
    index: int


class VoyageUsage(Struct, kw_only=True):
    """Tokens of the texts after cutting, special tokens included."""

    total_tokens: int


class VoyageEmbeddingResponse(Struct, kw_only=True):
    """Vectors in input order."""

    object: Literal["list"]
    data: list[VoyageEmbedding]
    model: str
    usage: VoyageUsage


class VoyageChunks(Struct, kw_only=True):
    """Vectors of the chunks of one document."""

    object: Literal["list"]
    data: list[VoyageEmbedding]
    index: int


class VoyageContextResponse(Struct, kw_only=True):
    """Vectors by document, in input order."""

    object: Literal["list"]
    data: list[VoyageChunks]
    model: str
    usage: VoyageUsage


class VoyageRerankRequest(Struct, kw_only=True):
    """A query, and documents to rank by it."""

    query: str
    documents: list[str]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    top_k: Annotated[int, Meta(ge=1, le=2**63 - 1, description="How many to give back; unset, all.")] | None = None
    return_documents: Annotated[bool, Meta(description="Give the documents back too.")] = False
    truncation: (
        Annotated[bool, Meta(description="Cut longer pairs, or refuse them; unset, as `--on-long`, else cut.")] | None
    ) = None


class VoyageRanked(Struct, kw_only=True):
    """One document of a ranking; `index` is its place in the request."""

    index: int
    relevance_score: float
    document: str | UnsetType = UNSET


class VoyageRerankResponse(Struct, kw_only=True):
    """Documents from best to worst."""

    object: Literal["list"]
    data: list[VoyageRanked]
    model: str
    usage: VoyageUsage


_NAMES = {"dimensions": "output_dimension", "input_tokens": "input", "spans": "inputs", "prompts": "input"}


async def embeddings(door: Door, request: Request, body: VoyageEmbeddingRequest) -> Response:
    """Answer `POST /v1/embeddings` of Voyage."""
    texts, notes = [body.input] if isinstance(body.input, str) else body.input, Notes()
    if not texts:
        raise NoInputs("There are no texts to embed.", allowed="It takes one or more.", param="input")
    engine = vectors.embedder(door, body.model)
    with calls.renaming(_NAMES):
        params = vectors.params_of(engine, body.input_type, notes, field="input_type", dimensions=body.output_dimension)
        found = await vectors.embedded(
            door, request, engine, texts, params, length_of(door, body.truncation), said=body.truncation is not None
        )
    parts = await _in_form(found, body, notes)
    data = [{"object": "embedding", "embedding": part, "index": index} for index, part in enumerate(parts)]
    return await _listed(request, found, body, notes, data)


async def contextualized(door: Door, request: Request, body: VoyageContextRequest) -> Response:
    """Answer `POST /v1/contextualizedembeddings`: late chunking of several documents."""
    given = ["enable_auto_chunking"] if body.enable_auto_chunking else []
    given += [name for name in ("chunk_size", "chunk_overlap") if calls.says_something(getattr(body, name))]
    if given:
        raise BadInput(
            f"The request has {given[0]}; chunks are not made here.", allowed="Chunks come as texts.", param=given[0]
        )
    notes = Notes()
    if not body.inputs or not all(body.inputs):
        raise NoInputs("A document has no chunks, or there is none.", allowed="One chunk or more each.", param="inputs")
    engine = vectors.embedder(door, body.model)
    with calls.renaming(_NAMES):
        params = vectors.params_of(engine, body.input_type, notes, field="input_type", dimensions=body.output_dimension)
        found = await vectors.late_chunked(door, request, engine, body.inputs, params)
    parts = iter(await _in_form(found, body, notes))
    data = [
        {
            "object": "list",
            "data": [{"object": "embedding", "embedding": next(parts), "index": at} for at in range(len(chunks))],
            "index": index,
        }
        for index, chunks in enumerate(body.inputs)
    ]
    return await _listed(request, found, body, notes, data)


async def _in_form(found: vectors.Vectors, body: VectorFields, notes: Notes) -> Any:
    rows = await found.in_form(body.output_dtype or "float", notes.warnings)
    return rows if body.encoding_format is None else await calls.aside(rows.nbytes, arrays.packed, rows)


async def _listed(
    request: Request, found: vectors.Vectors, body: VectorFields, notes: Notes, data: list[Any]
) -> Response:
    answer = {
        "object": "list",
        "data": data,
        "model": body.model or found.engine.name,
        "usage": {"total_tokens": found.outcome.num_tokens},
    }
    response = await calls.aside(found.num_bytes, replies.as_json, answer)
    replies.tell(response, found.headers(request, notes))
    return response


def length_of(door: Door, truncation: bool | None) -> Length:
    """What happens to long texts: they are cut, where neither request nor server says otherwise."""
    return Length(door.on_long or "cut") if truncation is None else Length("cut" if truncation else "refuse")


async def rerank(door: Door, request: Request, body: VoyageRerankRequest) -> Response:
    """Answer `POST /v1/rerank` of Voyage."""
    asked = scoring.RerankRequest(query=body.query, documents=[*body.documents], model=body.model)
    done, documents = await scoring.reranked(door, request, asked, length_of(door, body.truncation))
    data = [
        {"index": one.index, "relevance_score": one.score}
        | ({"document": one.document} if body.return_documents else {})
        for one in score.ranking(done.scores, documents, body.top_k)
    ]
    answer = {
        "object": "list",
        "data": data,
        "model": body.model or done.engine.name,
        "usage": {"total_tokens": done.outcome.num_tokens},
    }
    response = await calls.aside(sum(map(len, documents)), replies.as_json, answer)
    replies.tell(response, done.headers)
    return response


def _route(path: str, answer: Answer, summary: str, request: type[Struct], response: Any, *keys: str) -> Route:
    return Route(
        "POST",
        path,
        answer,
        summary,
        VOYAGE,
        bare=bool(keys),
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=CALL_ERRORS,
    )


def _embeddings(*keys: str) -> Route:
    summary = "Vectors of texts; without the prefix where `truncation` or `output_dtype` is given."
    return _route("/v1/embeddings", embeddings, summary, VoyageEmbeddingRequest, VoyageEmbeddingResponse, *keys)


def _rerank(*keys: str) -> Route:
    summary = "Documents from best to worst for a query; without the prefix where `top_k` or `truncation` is given."
    return _route("/v1/rerank", rerank, summary, VoyageRerankRequest, VoyageRerankResponse, *keys)


_CHUNKS = "Vectors of chunks, each as part of its document."

ROUTES = (
    _embeddings("input", "truncation"),
    _embeddings("input", "output_dtype"),
    _embeddings(),
    _rerank("documents", "top_k"),
    _rerank("documents", "truncation"),
    _rerank(),
    _route(
        "/v1/contextualizedembeddings",
        contextualized,
        _CHUNKS,
        VoyageContextRequest,
        VoyageContextResponse,
        "inputs",
    ),
)
