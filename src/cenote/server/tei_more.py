"""The other routes of text-embeddings-inference: tokens, facts about the model, and the roads of cloud services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from .. import device, prompting
from ..errors import BadInput, NoInputs
from ..types import Located
from . import bodies, calls, ops, replies, tei
from .dialect import OPS
from .route import Route
from .schemas import TokenId
from .tei import TEI, Answered

if TYPE_CHECKING:
    from ..engine import Engine
    from ..recipe import Recipe
    from .door import Door

_BYTES_PER_CHAR = 16  # of work, so to speak
_BYTES_PER_ID = 64

Work: TypeAlias = "Callable[[Door, Request, Any], Awaitable[Answered]]"
Texts: TypeAlias = list[str]


class TeiTokenizeRequest(Struct, kw_only=True):
    """Texts to tokenise."""

    inputs: str | list[str]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    add_special_tokens: bool = True
    prompt_name: Annotated[str, Meta(description="Name of a prompt that goes before each text.")] | None = None


class Token(Struct, kw_only=True):
    """One token; where it stands in the text, in characters, unless it is a special one."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class DecodeRequest(Struct, kw_only=True):
    """Token ids to read."""

    ids: Annotated[list[TokenId | list[TokenId]], Meta(description="Of one text, or a list of those of several.")]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    skip_special_tokens: bool = True


class VertexRequest(Struct, kw_only=True):
    """Several bodies in one."""

    instances: Annotated[
        list[dict[str, Any]], Meta(description="Bodies of `/rerank`, `/similarity`, or what the model does by itself.")
    ]


class VertexResponse(Struct, kw_only=True):
    """The answer to each of them, in order."""

    predictions: list[Any]


class AnyRequest(tei.Fields, kw_only=True):
    """What the model does by itself: classes, vectors, sparse vectors or rows of tokens; its fields are theirs."""

    inputs: Annotated[Any, Meta(description="Texts, pairs, token ids, or a text and others to compare it with.")]
    parameters: Annotated[dict[str, Any], Meta(description="Of a comparison.")] | None = None
    prompt_name: Annotated[str, Meta(description="Name of one of the model's prompts.")] | None = None
    normalize: Annotated[bool, Meta(description="Whether vectors have unit length; unset, yes.")] | None = None
    dimensions: Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None = None
    raw_scores: Annotated[bool, Meta(description="Leave out the activation of a classifier.")] = False


class TeiInfo(Struct, kw_only=True):
    """Facts about the default model; null where there is no such limit."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, Any]
    max_concurrent_requests: None
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int | None
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: None
    docker_label: None
    cenote: Annotated[ops.Info, Meta(description="What was decided about each model, and why.")]


async def tokenize(door: Door, request: Request, body: TeiTokenizeRequest) -> Response:
    """Answer `POST /tokenize`."""
    engine = door.model(body.model)
    door.allow_listed(body.inputs, "inputs")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    if not texts:
        raise NoInputs("There are no texts to tokenise.", allowed="It takes one or more.", param="inputs")
    # No prompt unless one is named: what a text itself has is asked for.
    named = body.prompt_name
    before = "" if named is None else prompting.text_before(engine.recipe, prompt=None, prompt_name=named)
    size = sum(map(len, texts)) * _BYTES_PER_CHAR

    def work() -> list[list[dict[str, Any]]]:
        whole = [before + text for text in texts]
        located = engine.tokenizer.locate(whole, body.add_special_tokens, engine.name)
        return [_tokens(text, item) for text, item in zip(whole, located, strict=True)]

    return replies.as_json(await calls.aside(size, work))


def _tokens(text: str, located: Located) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for number, spelled, special, (start, stop) in zip(
        located.ids.tolist(), located.tokens, located.special.tolist(), located.spans.tolist(), strict=True
    ):
        place = {"start": None, "stop": None} if special else {"start": start, "stop": stop}
        listed.append({"id": number, "text": spelled if special else text[start:stop], "special": special, **place})
    return listed


async def decode(door: Door, request: Request, body: DecodeRequest) -> Response:
    """Answer `POST /decode`."""
    door.allow_listed(body.ids, "ids")
    engine = door.model(body.model)
    rows: list[Any] = [body.ids] if body.ids and isinstance(body.ids[0], int) else body.ids
    if not rows or any(isinstance(row, int) for row in rows) or any(isinstance(one, list) for one in rows[0]):
        raise BadInput("ids is not one list of token ids, nor a list of such lists.", param="ids")
    size = sum(map(len, rows)) * _BYTES_PER_ID

    def work() -> list[str]:
        return [engine.tokenizer.decode(row, body.skip_special_tokens) for row in rows]

    return replies.as_json(await calls.aside(size, work))


async def info(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /info`."""
    engine = door.model(None) if len(door.engines()) == 1 else door.engines()[0]
    recipe, machine = engine.recipe, door.registry.machine
    here = device.plan(machine, recipe.dtype, recipe.stored_dtype)
    own = ops.info_of(door)
    told = TeiInfo(
        model_id=_model_id(engine),
        model_sha=recipe.checkpoint.revision,
        model_dtype=str(here.dtype).removeprefix("torch."),
        served_model_name=engine.name,
        model_type=_model_type(recipe),
        max_concurrent_requests=None,
        max_input_length=recipe.max_len,
        max_batch_tokens=here.max_batch_tokens,
        max_batch_requests=machine.max_batch_seqs,
        max_client_batch_size=door.settings.max_inputs or None,
        auto_truncate=door.on_long != "refuse",
        tokenization_workers=door.registry.num_tokenizer_threads,
        version=own.version,
        sha=None,
        docker_label=None,
        cenote=own,
    )
    return Response(msgspec.json.encode(told), media_type=replies.JSON)


def _model_id(engine: Engine) -> str:
    """Its name at a hub; a folder of this machine is nobody's business."""
    checkpoint = engine.recipe.checkpoint
    return engine.name if checkpoint.folder == Path(checkpoint.name).expanduser() else checkpoint.name


def _model_type(recipe: Recipe) -> dict[str, Any]:
    classifier = recipe.classifier
    if classifier is not None:
        id2label = {str(number): label for number, label in enumerate(classifier.labels)}
        label2id = {label: number for number, label in enumerate(classifier.labels)}
        kind = "reranker" if classifier.head == "sequence" and len(classifier.labels) == 1 else "classifier"
        return {kind: {"id2label": id2label, "label2id": label2id}}
    if recipe.default_task == "sparse":
        return {"embedding": {"pooling": "splade"}}
    modes = recipe.pooling.modes if recipe.pooling else ("none",)
    return {"embedding": {"pooling": "last_token" if modes == ("last",) else "_".join(modes)}}


async def vertex(door: Door, request: Request, body: VertexRequest) -> Response:
    """Answer `POST /vertex`."""
    if not body.instances:
        raise NoInputs("There are no instances.", allowed="It takes one or more.", param="instances")
    door.allow(len(body.instances), "instances")
    # All are checked before the first one runs.
    fitted = [fitting(door, one, f"instances[{index}]") for index, one in enumerate(body.instances)]
    running = [asyncio.ensure_future(work(door, request, one)) for work, one in fitted]
    try:
        answers = await asyncio.gather(*running)
    finally:
        for one in running:
            one.cancel()
    size = sum(row.nbytes for one in answers for row in one.outcome.rows)
    return await calls.aside(size, replies.as_json, {"predictions": [one.value for one in answers]})


async def invocations(door: Door, request: Request, body: AnyRequest) -> Response:
    """Answer `POST /invocations` with a body of this dialect."""
    given = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not None}
    work, own = fitting(door, given)
    return await tei.respond(await work(door, request, own))


def fitting(door: Door, given: Mapping[str, Any], where: str = "") -> tuple[Work, Struct]:
    """What answers a body, by its fields and by what the model is, and the body as that takes it.

    Raises:
        Refusal: The body does not fit.
    """
    kind, work = _fitting(door, given)
    return work, bodies.converted(given, kind, where)


def _fitting(door: Door, given: Mapping[str, Any]) -> tuple[type[Struct], Work]:
    if "query" in given and "texts" in given:
        return tei.TeiRerankRequest, tei.reranked
    if isinstance(given.get("inputs"), dict):
        return tei.SimilarityRequest, tei.compared
    name = given.get("model")
    engine = door.model(name if isinstance(name, str) else None)
    return by_task(engine)


def by_task(engine: Engine) -> tuple[type[Struct], Work]:
    """What the model does by itself."""
    task = engine.recipe.default_task
    if task == "embed":
        return tei.EmbedRequest, tei.embedded
    if task == "sparse":
        return tei.TextsRequest, tei.embedded_sparse
    if task == "token_embed":
        return tei.TextsRequest, tei.embedded_all
    return tei.PredictRequest, tei.predicted


def _lookup(path: str, answer: Any, summary: str, request: type[Struct], response: Any, *keys: str) -> Route:
    return Route(
        "POST",
        path,
        answer,
        summary,
        TEI,
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=tei.LOOKUP_ERRORS,
    )


def _call(path: str, answer: Any, request: type[Struct], response: Any, *keys: str, bare: bool = True) -> Route:
    summary = "What the model does by itself, as services of clouds ask for it."
    return Route(
        "POST",
        path,
        answer,
        summary,
        TEI,
        bare=bare,
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=tei.CALL_ERRORS,
    )


_ANY = (
    tei.Vectors,
    list[tei.Prediction | list[tei.Prediction]],
    tei.TokenRows,
    list[list[tei.Weight]],
    tei.Scores,
)
_RERANK = tei.answering(tei.reranked)

ROUTES = (
    _lookup("/tokenize", tokenize, "Tokens of texts.", TeiTokenizeRequest, list[list[Token]], "inputs"),
    _lookup("/decode", decode, "Texts of token ids.", DecodeRequest, Texts),
    Route("GET", "/info", info, "What is served, and what was decided about it.", OPS, (TEI,), response=TeiInfo),
    _call("/vertex", vertex, VertexRequest, VertexResponse),
    _call("/invocations", _RERANK, tei.TeiRerankRequest, list[tei.Rank], "query", "texts"),
    _call("/invocations", invocations, AnyRequest, _ANY, "inputs"),
    _call("/", _RERANK, tei.TeiRerankRequest, list[tei.Rank], "query", "texts", bare=False),
    _call("/", invocations, AnyRequest, _ANY, bare=False),
)
