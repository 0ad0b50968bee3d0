"""The dialect of Ollama, as far as it is about vectors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import ModelNotFound
from ..tasks import embed
from ..types import Length, Outcome
from . import calls, ops, replies, vectors
from .dialect import Dialect, Failure
from .route import CALL_ERRORS, LOOKUP_ERRORS, Route

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

_LATEST = ":latest"
_WEIGHTS = (".safetensors", ".bin")


class OllamaError(Struct, kw_only=True):
    """An error as Ollama's clients read it."""

    error: str


def tell(failure: Failure) -> OllamaError:
    """The body of an error."""
    return OllamaError(error=failure.message)


OLLAMA = Dialect("ollama", OllamaError, tell, {"unsupported_task": 400})


class OllamaFields(Struct, kw_only=True):
    """What every call may say."""

    model: Annotated[str, Meta(description="A served name, with or without `:latest`.")]
    options: (
        Annotated[dict[str, Any], Meta(description="`num_ctx` is the most tokens of a text; others have no effect.")]
        | None
    ) = None
    keep_alive: Annotated[str | float, Meta(description="Accepted and without effect.")] | None = None


class OllamaEmbedRequest(OllamaFields, kw_only=True):
    """Texts to embed; none, to see whether the model is there."""

    input: str | list[str] = ""
    truncate: Annotated[bool, Meta(description="Cut longer texts, or refuse them; unset, cut.")] | None = None
    dimensions: (
        Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model; 0 for all.")] | None
    ) = None


class OllamaEmbedResponse(Struct, kw_only=True):
    """Vectors of unit length; times in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbeddingsRequest(OllamaFields, kw_only=True):
    """One text to embed, in the old way."""

    prompt: str = ""


class OllamaEmbeddingsResponse(Struct, kw_only=True):
    """Its vector, not normalised."""

    embedding: list[float]


class OllamaDetails(Struct, kw_only=True):
    """What a model is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(Struct, kw_only=True):
    """A name that requests may use; `size` in bytes."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaModels(Struct, kw_only=True):
    """All of them."""

    models: list[OllamaModel]


class OllamaShowRequest(Struct, kw_only=True):
    """Which model to tell about."""

    model: str = ""
    name: Annotated[str, Meta(description="Old name of `model`.")] = ""


class OllamaShowResponse(Struct, kw_only=True):
    """What a model is."""

    modified_at: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]


async def embeddings(door: Door, request: Request, body: OllamaEmbedRequest) -> Response:
    """Answer `POST /api/embed`."""
    engine = _model(door, body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    answer: dict[str, Any] = {"model": body.model, "embeddings": [], "load_duration": 0, "prompt_eval_count": 0}
    outcome = None
    if body.input:
        params = embed.Params(normalize=True, dimensions=body.dimensions or None)
        outcome = await _run(door, request, engine, texts, params, body)
        answer |= {"embeddings": outcome.rows, "prompt_eval_count": outcome.num_tokens}
    answer["total_duration"] = int((time.perf_counter() - request.state.arrived) * 1e9)
    return await _reply(request, answer, engine, outcome)


async def embedding(door: Door, request: Request, body: OllamaEmbeddingsRequest) -> Response:
    """Answer `POST /api/embeddings`."""
    engine = _model(door, body.model)
    if not body.prompt:
        return await _reply(request, {"embedding": []}, engine, None)
    outcome = await _run(door, request, engine, [body.prompt], embed.Params(normalize=False), body)
    return await _reply(request, {"embedding": outcome.rows[0]}, engine, outcome)


async def tags(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /api/tags`."""
    models = [_told(door, engine, name) for engine in door.engines() for name in (engine.name, *engine.aliases)]
    return Response(msgspec.json.encode(OllamaModels(models=models)), media_type=replies.JSON)


async def version(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /api/version`."""
    return Response(msgspec.json.encode(ops.Version(version=ops.installed_version())), media_type=replies.JSON)


async def show(door: Door, request: Request, body: OllamaShowRequest) -> Response:
    """Answer `POST /api/show`."""
    engine = _model(door, body.model or body.name)
    told = _told(door, engine, engine.name)
    recipe = engine.recipe
    about = {
        "general.architecture": recipe.model_type,
        f"{recipe.model_type}.context_length": recipe.max_len,
        f"{recipe.model_type}.embedding_length": recipe.embedding_size,
    }
    able = ["embedding"] if embed.NAME in recipe.tasks else []
    answer = OllamaShowResponse(modified_at=told.modified_at, details=told.details, model_info=about, capabilities=able)
    return Response(msgspec.json.encode(answer), media_type=replies.JSON)


def _model(door: Door, name: str) -> Engine:
    """The model of that name, whichever of the two has `:latest` at its end."""
    try:
        return door.model(name)
    except ModelNotFound:
        other = name.removesuffix(_LATEST) if name.endswith(_LATEST) else name + _LATEST
        known = {name for engine in door.engines() for name in (engine.name, *engine.aliases)}
        if other not in known:
            raise
        return door.model(other)


async def _run(
    door: Door, request: Request, engine: Engine, texts: Sequence[str], params: embed.Params, body: OllamaFields
) -> Outcome:
    truncate = getattr(body, "truncate", None)
    on_long = (door.on_long or "cut") if truncate is None else "cut" if truncate else "refuse"
    most = (body.options or {}).get("num_ctx")
    limit = most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else None
    said, length = truncate is not None, Length(on_long, limit=limit)
    with calls.renaming({"prompts": "input", "input_tokens": "input"}):
        found = await vectors.embedded(door, request, engine, texts, params, length, said=said)
    return found.outcome


async def _reply(request: Request, answer: dict[str, Any], engine: Engine, outcome: Outcome | None) -> Response:
    size = sum(row.nbytes for row in outcome.rows) if outcome else 0
    response = await calls.aside(size, replies.as_json, answer)
    if outcome:
        replies.tell(response, calls.timing_headers(request, outcome) | calls.model_headers(engine))
    return response


def _told(door: Door, engine: Engine, name: str) -> OllamaModel:
    recipe = engine.recipe
    full = name if ":" in name else name + _LATEST
    files = recipe.checkpoint.folder.rglob("*")
    details = OllamaDetails(
        parent_model="",
        format="safetensors",
        family=recipe.model_type,
        families=[recipe.model_type],
        parameter_size="",
        quantization_level=recipe.stored_dtype,
    )
    return OllamaModel(
        name=full,
        model=full,
        modified_at=datetime.fromtimestamp(door.created, UTC).isoformat(),
        size=sum(path.stat().st_size for path in files if path.suffix in _WEIGHTS),
        digest=(engine.fingerprint.known() if engine.fingerprint else None) or "",
        details=details,
    )


def _route(path: str, answer: Any, summary: str, request: type[Struct], response: Any, errors: Any) -> Route:
    return Route("POST", path, answer, summary, OLLAMA, request=request, response=response, errors=errors)


ROUTES = (
    _route("/api/embed", embeddings, "Vectors of texts.", OllamaEmbedRequest, OllamaEmbedResponse, CALL_ERRORS),
    _route(
        "/api/embeddings",
        embedding,
        "The vector of one text, in the old way.",
        OllamaEmbeddingsRequest,
        OllamaEmbeddingsResponse,
        CALL_ERRORS,
    ),
    _route("/api/show", show, "What a model is.", OllamaShowRequest, OllamaShowResponse, LOOKUP_ERRORS),
    Route("GET", "/api/tags", tags, "Names that requests may use.", OLLAMA, response=OllamaModels),
    Route("GET", "/api/version", version, "Version of Cenote.", OLLAMA, response=ops.Version),
)
