"""The Cohere dialect, both versions: what is embedded and ranked. `cohere_more` has its other routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from .. import prompting
from ..errors import BadInput
from ..tasks import embed
from ..types import Length
from . import calls, replies, scoring, vectors
from .dialect import VLLM, Dialect, Failure
from .route import CALL_ERRORS, Route
from .schemas import NotServed

if TYPE_CHECKING:
    from ..recipe import Recipe
    from .door import Door

Truncate: TypeAlias = Annotated[
    Literal["NONE", "START", "END"], Meta(description="Refuse longer texts, or cut them at an end; unset, END.")
]
InputType: TypeAlias = Annotated[
    str, Meta(description="Chooses one of the model's prompts; where none fits there is no prompt, and a warning.")
]


class CohereError(Struct, kw_only=True):
    """An error as Cohere's clients read it."""

    message: str
    id: str


def tell(failure: Failure) -> CohereError:
    """The body of an error."""
    return CohereError(message=failure.message, id=failure.request_id)


COHERE = Dialect("cohere", CohereError, tell, {"unsupported_task": 400})
CLIENT = ("x-fern-sdk-name", "cohere")
"""What Cohere's own clients send, by which they are known on the paths that others have too."""


class EmbedV1(Struct, kw_only=True):
    """Texts to embed, version 1."""

    texts: list[str] | None = None
    model: str | None = None
    input_type: InputType | None = None
    embedding_types: (
        Annotated[list[vectors.FormOrBase64], Meta(description="Unset, the answer is a plain list of vectors.")] | None
    ) = None
    truncate: Truncate | None = None
    images: NotServed | UnsetType = UNSET


class Content(Struct, kw_only=True):
    """One input of version 2: a text, or parts of the type text, which are joined."""

    content: str | list[dict[str, Any]]


class EmbedV2(EmbedV1, kw_only=True):
    """Texts to embed, version 2; either `texts` or `inputs`."""

    inputs: list[Content] | None = None
    max_tokens: (
        Annotated[int, Meta(ge=1, description="Most tokens of a text; never above the model's limit.")] | None
    ) = None
    output_dimension: Annotated[int, Meta(description="Size of the vectors of a Matryoshka model.")] | None = None
    priority: Annotated[int, Meta(description="Above 0, other requests go first; 512 inputs at 0 count as above.")] = 0


class ApiVersion(Struct, kw_only=True):
    """Version of the API."""

    version: str


class Billed(Struct, kw_only=True, omit_defaults=True):
    """What Cohere counts."""

    input_tokens: int | None = None
    classifications: int | None = None


class CohereMeta(Struct, kw_only=True, omit_defaults=True):
    """What was used, and what may surprise."""

    api_version: ApiVersion
    billed_units: Billed | None = None
    warnings: list[str] | None = None


class ByType(Struct, kw_only=True, rename={"float_": "float"}):
    """Vectors in each form that was asked for."""

    float_: list[list[float]] | UnsetType = UNSET
    int8: list[list[int]] | UnsetType = UNSET
    uint8: list[list[int]] | UnsetType = UNSET
    binary: list[list[int]] | UnsetType = UNSET
    ubinary: list[list[int]] | UnsetType = UNSET
    base64: list[str] | UnsetType = UNSET


class EmbedFloats(Struct, kw_only=True):
    """Vectors of version 1 where no type was asked for."""

    id: str
    texts: list[str]
    embeddings: list[list[float]]
    meta: CohereMeta
    response_type: Literal["embeddings_floats"]


class EmbedByType(Struct, kw_only=True):
    """Vectors by type."""

    id: str
    texts: list[str]
    embeddings: ByType
    meta: CohereMeta
    response_type: Literal["embeddings_by_type"]


async def embed_v1(door: Door, request: Request, body: EmbedV1) -> Response:
    """Answer `POST /v1/embed`."""
    return await _embed(door, request, body, _texts(body, body.texts), "1")


async def embed_v2(door: Door, request: Request, body: EmbedV2) -> Response:
    """Answer `POST /v2/embed`."""
    given = [name for name in ("texts", "inputs") if getattr(body, name) is not None]
    if len(given) == 2:
        raise BadInput("The request has both `texts` and `inputs`.", fix="Send one of them.", param="inputs")
    contents: Any = None if body.inputs is None else [{"content": one.content} for one in body.inputs]
    texts = _texts(body, body.texts if contents is None else scoring.texts(contents, "inputs"))
    return await _embed(
        door,
        request,
        body,
        texts,
        "2",
        dimensions=body.output_dimension,
        max_tokens=body.max_tokens,
        priority=body.priority,
    )


def _texts(body: EmbedV1, given: list[str] | None) -> list[str]:
    if calls.says_something(body.images):
        raise BadInput(
            "The request has images, and no model here reads them.", allowed="It takes texts.", param="images"
        )
    if not given:
        raise BadInput("There are no texts to embed.", allowed="It takes one or more.", param="texts")
    return given


async def _embed(
    door: Door,
    request: Request,
    body: EmbedV1,
    texts: Sequence[str],
    version: str,
    *,
    dimensions: int | None = None,
    max_tokens: int | None = None,
    priority: int = 0,
) -> Response:
    engine = vectors.embedder(door, body.model)
    warnings: list[str] = []
    before = prompt(engine.recipe, body.input_type, warnings)
    params = embed.Params(dimensions=dimensions, prompt=before, input_type=body.input_type)
    length = length_of(door, body.truncate, max_tokens)
    with calls.renaming({"dimensions": "output_dimension", "input_tokens": "texts", "prompts": "texts"}):
        found = await vectors.embedded(
            door, request, engine, texts, params, length, said=body.truncate is not None, priority=priority
        )
    by_type = await found.in_forms(body.embedding_types or ["float"], warnings)
    plain = version == "1" and body.embedding_types is None
    answer = {
        "id": request.state.request_id,
        "texts": texts,
        "embeddings": by_type["float"] if plain else by_type,
        "meta": msgspec.to_builtins(meta(version, found.outcome.num_tokens, warnings)),
        "response_type": "embeddings_floats" if plain else "embeddings_by_type",
    }
    size = found.num_bytes + sum(map(len, texts))
    response = await calls.aside(size, replies.as_json, answer)
    replies.tell(response, calls.timing_headers(request, found.outcome) | calls.model_headers(engine))
    return response


def prompt(recipe: Recipe, input_type: str | None, warnings: list[str]) -> str | None:
    """What goes before each text: the prompt that fits an input type, "" with a warning where none does.

    Returns:
        None where the request names no input type, so that the checkpoint's default holds.
    """
    if input_type is None:
        return None
    names = prompting.fitting(recipe, input_type)
    if not names and recipe.routing is None:
        has = ", ".join(recipe.prompts) or "none"
        warnings.append(f"{recipe.name} has no prompt for input_type {input_type[:64]!r} (it has: {has}).")
    return next(filter(None, (recipe.prompts[name] for name in names)), "")


def length_of(door: Door, truncate: str | None, limit: int | None = None) -> Length:
    """What happens to long texts; by default they are cut at the end, as Cohere does."""
    if truncate is None:
        return Length(door.on_long or "cut", limit=limit)
    if truncate == "NONE":
        return Length("refuse", limit=limit)
    return Length("cut", "left" if truncate == "START" else "right", limit)


def meta(version: str, num_tokens: int, warnings: Sequence[str] = ()) -> CohereMeta:
    """`meta` of an answer."""
    billed = Billed(input_tokens=num_tokens)
    return CohereMeta(api_version=ApiVersion(version=version), billed_units=billed, warnings=list(warnings) or None)


class RerankV2(Struct, kw_only=True):
    """A query, and documents to rank by it, version 2."""

    query: str
    documents: scoring.Texts
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1, description="How many to give back; unset, all.")] | None = None
    max_tokens_per_doc: scoring.MaxTokens | None = None
    priority: Annotated[int, Meta(description="Above 0, other requests go first; 512 inputs at 0 count as above.")] = 0


class RerankV1(RerankV2, kw_only=True):
    """A query, and documents to rank by it, version 1."""

    return_documents: bool = False
    rank_fields: NotServed | UnsetType = UNSET


async def rerank_v1(door: Door, request: Request, body: RerankV1) -> Response:
    """Answer `POST /v1/rerank` for Cohere's clients."""
    return await _rerank(door, request, body, return_documents=body.return_documents, rank_fields=body.rank_fields)


async def rerank_v2(door: Door, request: Request, body: RerankV2) -> Response:
    """Answer `POST /v2/rerank` for Cohere's clients."""
    return await _rerank(door, request, body, return_documents=False)


async def _rerank(door: Door, request: Request, body: RerankV2, **more: Any) -> Response:
    same = {name: getattr(body, name) for name in RerankV2.__struct_fields__}
    cut = None if door.on_long == "refuse" else -1
    return await scoring.answer_rerank(door, request, scoring.RerankRequest(**same, **more, truncate_prompt_tokens=cut))


def _rerank_route(version: str, answer: Any, request: type[Struct]) -> Route:
    return Route(
        "POST",
        f"/v{version}/rerank",
        answer,
        "Documents from best to worst for a query; without the prefix for Cohere's own clients.",
        COHERE,
        header=CLIENT,
        request=request,
        response=scoring.RerankResponse,
        errors=CALL_ERRORS,
    )


ROUTES = (
    Route(
        "POST",
        "/v1/embed",
        embed_v1,
        "Vectors of texts, in one or several forms.",
        COHERE,
        request=EmbedV1,
        response=(EmbedFloats, EmbedByType),
        errors=CALL_ERRORS,
    ),
    Route(
        "POST",
        "/v2/embed",
        embed_v2,
        "Vectors of texts, in one or several forms.",
        COHERE,
        (VLLM,),
        request=EmbedV2,
        response=EmbedByType,
        errors=CALL_ERRORS,
    ),
    _rerank_route("1", rerank_v1, RerankV1),
    _rerank_route("2", rerank_v2, RerankV2),
)
