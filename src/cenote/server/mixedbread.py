"""The dialect of Mixedbread: vectors and rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput, NoInputs
from ..tasks import embed
from ..types import Length
from ..uses import score
from . import calls, replies, scoring, vectors
from .dialect import Dialect, Failure
from .notes import Notes
from .route import CALL_ERRORS, Answer, Route
from .schemas import NotServed

if TYPE_CHECKING:
    from .door import Door


class MixedbreadError(Struct, kw_only=True):
    """An error as Mixedbread's clients read it."""

    type: str
    url: str
    message: str
    details: dict[str, Any] | None


def tell(failure: Failure) -> MixedbreadError:
    """The body of an error; `url` is where the routes are described."""
    details = None if failure.param is None else {"param": failure.param}
    return MixedbreadError(type=failure.kind, url="/docs", message=failure.message, details=details)


MIXEDBREAD = Dialect("mixedbread", MixedbreadError, tell, {"unsupported_task": 400})


class MixedbreadEmbeddingRequest(Struct, kw_only=True):
    """Texts to embed."""

    input: str | list[str]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    dimensions: Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None = None
    prompt: Annotated[str, Meta(description="Text put before each input.")] | None = None
    normalized: (
        Annotated[bool, Meta(description="Whether vectors have unit length; unset, as the model says.")] | None
    ) = None
    encoding_format: (
        Annotated[
            vectors.FormOrBase64 | Annotated[list[vectors.FormOrBase64], Meta(min_length=1)],
            Meta(description="A list gives an object with each form."),
        ]
        | None
    ) = None
    truncation_strategy: (
        Annotated[
            Literal["start", "end", "none"],
            Meta(description="The end that is cut off, or refuse longer texts; unset, as `--on-long` says, else end."),
        ]
        | None
    ) = None


class MixedbreadForms(Struct, kw_only=True, rename={"float_": "float"}):
    """One vector in each form that was asked for."""

    float_: list[float] | UnsetType = UNSET
    int8: list[int] | UnsetType = UNSET
    uint8: list[int] | UnsetType = UNSET
    binary: list[int] | UnsetType = UNSET
    ubinary: list[int] | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class MixedbreadEmbedding(Struct, kw_only=True):
    """The vector of one text; in one form, or in several."""

    index: int
    embedding: list[float] | str | MixedbreadForms
    object: Literal["embedding", "embedding_dict"]


class MixedbreadUsage(Struct, kw_only=True):
    """Tokens of the texts after cutting, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class MixedbreadEmbeddingResponse(Struct, kw_only=True):
    """Vectors in input order."""

    usage: MixedbreadUsage
    model: str
    data: list[MixedbreadEmbedding]
    object: Literal["list"]
    normalized: bool
    encoding_format: str | list[str]
    dimensions: int


class MixedbreadRerankRequest(Struct, kw_only=True):
    """A query, and inputs to rank by it."""

    query: str
    input: scoring.Texts
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    top_k: Annotated[int, Meta(ge=1, le=2**63 - 1, description="How many to give back; unset, all.")] | None = None
    return_input: Annotated[bool, Meta(description="Give the inputs back too.")] = False
    rank_fields: NotServed | UnsetType = UNSET


class MixedbreadRanked(Struct, kw_only=True):
    """One input of a ranking; `index` is its place in the request."""

    index: int
    score: float
    object: Literal["rank_result"]
    input: str | UnsetType = UNSET


class MixedbreadRerankResponse(Struct, kw_only=True):
    """Inputs from best to worst."""

    usage: MixedbreadUsage
    model: str
    data: list[MixedbreadRanked]
    object: Literal["list"]
    top_k: int
    return_input: bool


async def embeddings(door: Door, request: Request, body: MixedbreadEmbeddingRequest) -> Response:
    """Answer `POST /v1/embeddings` of Mixedbread."""
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not texts:
        raise NoInputs("There are no texts to embed.", allowed="It takes one or more.", param="input")
    engine, notes = vectors.embedder(door, body.model), Notes()
    params = embed.Params(normalize=body.normalized, dimensions=body.dimensions, prompt=body.prompt)
    length, said = _length(door, body.truncation_strategy), body.truncation_strategy is not None
    with calls.renaming({"input_tokens": "input", "prompts": "input"}):
        found = await vectors.embedded(door, request, engine, texts, params, length, said=said)
    given = body.encoding_format or "float"
    forms = await found.in_forms([given] if isinstance(given, str) else given, notes.warnings)
    parts: Any = forms[given] if isinstance(given, str) else vectors.by_input(forms)
    kind = "embedding" if isinstance(given, str) else "embedding_dict"
    answer = {
        "usage": _usage(found.outcome.num_tokens),
        "model": body.model or engine.name,
        "data": [{"index": index, "embedding": part, "object": kind} for index, part in enumerate(parts)],
        "object": "list",
        "normalized": engine.recipe.normalize if body.normalized is None else body.normalized,
        "encoding_format": given,
        "dimensions": len(found.outcome.rows[0]),
    }
    response = await calls.aside(found.num_bytes, replies.as_json, answer)
    replies.tell(response, found.headers(request, notes))
    return response


async def rerank(door: Door, request: Request, body: MixedbreadRerankRequest) -> Response:
    """Answer `POST /v1/reranking` of Mixedbread."""
    if calls.says_something(body.rank_fields):
        raise BadInput(
            "The request has rank_fields, which would change the result and is not served.",
            allowed="Inputs are texts.",
            param="rank_fields",
        )
    texts: list[Any] = [*scoring.texts(body.input, "input")]
    asked = scoring.RerankRequest(query=body.query, documents=texts, model=body.model)
    with calls.renaming({"documents": "input"}):
        done, _ = await scoring.reranked(door, request, asked, _length(door, None))
    ranking = score.ranking(done.scores, texts, body.top_k)
    data = [
        {"index": one.index, "score": one.score, "object": "rank_result"}
        | ({"input": one.document} if body.return_input else {})
        for one in ranking
    ]
    answer = {
        "usage": _usage(done.outcome.num_tokens),
        "model": body.model or done.engine.name,
        "data": data,
        "object": "list",
        "top_k": len(ranking),
        "return_input": body.return_input,
    }
    response = await calls.aside(sum(map(len, texts)), replies.as_json, answer)
    replies.tell(response, done.headers)
    return response


def _usage(num_tokens: int) -> dict[str, Any]:
    used: dict[str, Any] = msgspec.structs.asdict(MixedbreadUsage(prompt_tokens=num_tokens, total_tokens=num_tokens))
    return used


def _length(door: Door, strategy: str | None) -> Length:
    """What happens to long texts: they are cut at the end, where neither request nor server says otherwise."""
    if strategy is None:
        return Length(door.on_long or "cut")
    return Length("refuse") if strategy == "none" else Length("cut", "left" if strategy == "start" else "right")


def _route(path: str, answer: Answer, summary: str, request: Any, response: Any, *keys: str) -> Route:
    return Route(
        "POST",
        path,
        answer,
        summary,
        MIXEDBREAD,
        bare=bool(keys),
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=CALL_ERRORS,
    )


_EMBEDDINGS = (
    "/v1/embeddings",
    embeddings,
    "Vectors of texts; without the prefix where `truncation_strategy` is given.",
    MixedbreadEmbeddingRequest,
    MixedbreadEmbeddingResponse,
)
_RERANKING = (
    "/v1/reranking",
    rerank,
    "Inputs from best to worst for a query; without the prefix where `input` is given.",
    MixedbreadRerankRequest,
    MixedbreadRerankResponse,
)

ROUTES = (
    _route(*_EMBEDDINGS, "truncation_strategy"),
    _route(*_EMBEDDINGS),
    _route(*_RERANKING, "input"),
    _route(*_RERANKING),
)
