"""`/score` and `/rerank`: how well texts fit together.

The answer of `/rerank` is read by clients of the reference, of Cohere (both versions) and of Jina alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from .. import templates
from ..errors import BadInput, UnsupportedTask
from ..started import Started, parts_of
from ..types import Length, Outcome
from ..uses import listwise, score
from ..uses.score import Scores, ScoreType
from . import calls, lengths, replies
from .dialect import VLLM
from .notes import Notes
from .refusals import Refusal
from .route import CALL_ERRORS, Route
from .schemas import CallFields, NotServed, Usage

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

_DOCUMENTS_PER_UNIT: Final = 100
"""Cohere counts one search unit for a query with so many documents."""

_FORMS = 'a text, {"text": "..."}, or {"content": [...]} with parts of the type text.'
Text: TypeAlias = Annotated[str | dict[str, Any], Meta(description=f"It is {_FORMS}")]
Texts: TypeAlias = Annotated[
    str | dict[str, Any] | list[str | dict[str, Any]], Meta(description=f"One or a list; each is {_FORMS}")
]
MaxTokens: TypeAlias = Annotated[int, Meta(description="Cut to so many tokens before pairing; unset or 0, no cut.")]

SideType: TypeAlias = Annotated[
    str,
    Meta(
        description="What the texts of this side are, as in `input_type` of vectors, where they are read apart. Unset, "
        "query and document where the model reads those in ways of its own, else nothing."
    ),
]
SideAdapter: TypeAlias = Annotated[str, Meta(description="Name of the adapter that reads the texts of this side.")]
Weights: TypeAlias = Annotated[
    list[float], Meta(description="Of a hybrid score's parts: by dense, sparse and token vectors. Unset, equal ones.")
]


class ScoringFields(CallFields, kw_only=True):
    """How pairs are scored."""

    max_tokens_per_query: MaxTokens | None = None
    max_tokens_per_doc: MaxTokens | None = None
    instruction: Annotated[str, Meta(description="What the model is to judge by, if its template shows it.")] | None = (
        None
    )
    score_type: Annotated[ScoreType, Meta(description="Unset, what the model is.")] | None = None
    weights: Weights | None = None
    query_input_type: SideType | None = None
    document_input_type: SideType | None = None
    query_adapter: SideAdapter | None = None
    document_adapter: SideAdapter | None = None


class ScoreRequest(ScoringFields, kw_only=True):
    """Two texts, one text and several, or as many as several; under one of four pairs of names."""

    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None


PAIRS: Final = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""Names of the two sides of a score, in the order in which they are looked for."""


class RerankRequest(ScoringFields, kw_only=True):
    """A query, and documents to rank by it."""

    query: Text
    documents: Texts
    top_n: Annotated[int, Meta(ge=0, le=2**63 - 1, description="How many to give back; 0 for all.")] | None = None
    return_documents: Annotated[bool, Meta(description="False leaves the documents out of the results.")] | None = None
    rank_fields: NotServed | UnsetType = UNSET


class Scored(Struct, kw_only=True):
    """The score of one pair."""

    index: int
    object: Literal["score"]
    score: float


class ScoreResponse(Struct, kw_only=True):
    """Scores in input order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Scored]
    usage: Usage


class Document(Struct, kw_only=True):
    """The text of a document."""

    text: str
    multi_modal: None = None


class Ranked(Struct, kw_only=True):
    """One document of a ranking; `index` is its place in the request."""

    index: int
    relevance_score: float
    document: Document | UnsetType = UNSET


class ApiVersion(Struct, kw_only=True):
    """Version of the API, for clients of Cohere."""

    version: str = "2"


class BilledUnits(Struct, kw_only=True):
    """What Cohere counts."""

    search_units: int


class CountedTokens(Struct, kw_only=True):
    """Tokens of the inputs after cutting, special tokens included."""

    input_tokens: int


class RerankMeta(Struct, kw_only=True):
    """What clients of Cohere look at."""

    billed_units: BilledUnits
    tokens: CountedTokens
    api_version: ApiVersion = msgspec.field(default_factory=ApiVersion)


class RerankUsage(Struct, kw_only=True):
    """Tokens of the inputs after cutting, special tokens included; a query that runs once counts once."""

    prompt_tokens: int
    total_tokens: int


class RerankResponse(Struct, kw_only=True):
    """Documents from best to worst; ties in input order."""

    id: str
    object: Literal["rerank"]
    created: int
    model: str
    results: list[Ranked]
    meta: RerankMeta
    usage: RerankUsage


@dataclass(frozen=True, slots=True)
class Done:
    """Scores of pairs, and the headers that tell about them."""

    engine: Engine
    outcome: Outcome
    scores: Scores
    headers: dict[str, str]


async def answer_score(door: Door, request: Request, body: ScoreRequest) -> Response:
    """Answer `POST /score`."""
    sides = sides_of(body)
    if sides is None:
        raise BadInput(
            "The request has no two sides to score.",
            allowed=f"It takes {', '.join(' with '.join(pair) for pair in PAIRS)}.",
            param="data_1",
        )
    first, second = (texts(getattr(body, name), name) for name in sides)
    done = await scored(door, request, body, first, second, sides)
    data = [
        {"index": index, "object": "score", "score": value} for index, value in enumerate(done.scores.scores.tolist())
    ]
    response = replies.listed(replies.head("score", request, body.model or done.engine.name), data, done.outcome)
    replies.tell(response, done.headers)
    return response


async def answer_rerank(door: Door, request: Request, body: RerankRequest, length: Length | None = None) -> Response:
    """Answer `POST /rerank`; `length` is what happens to long texts, None as `body` says."""
    done, documents = await reranked(door, request, body, length)
    model = body.model or done.engine.name
    size = sum(map(len, documents))
    response = await calls.aside(size, lambda: _ranking(replies.head("score", request, model), body, documents, done))
    replies.tell(response, done.headers)
    return response


async def reranked(
    door: Door, request: Request, body: RerankRequest, length: Length | None = None
) -> tuple[Done, list[str]]:
    """The scores of a query with documents, and their texts."""
    if calls.says_something(body.rank_fields):
        raise BadInput(
            "The request has rank_fields, which would change the result and is not served.",
            allowed="Documents are texts.",
            param="rank_fields",
        )
    query, documents = texts(body.query, "query"), texts(body.documents, "documents")
    return await scored(door, request, body, query, documents, ("query", "documents"), length), documents


def sides_of(body: ScoreRequest) -> tuple[str, str] | None:
    """Names of the first two sides that a request gives, None where it gives none."""
    given = (pair for pair in PAIRS if all(getattr(body, name) is not None for name in pair))
    return next(given, None)


def texts(given: Any, field_name: str) -> list[str]:
    """One text or a list of texts, each alone, as `text`, or as parts of a `content`.

    Raises:
        BadInput: Something is no text.
    """
    listed = given if isinstance(given, list) else [given]
    return [_text(one, field_name, index) for index, one in enumerate(listed)]


def _text(given: Any, field_name: str, index: int) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given.get("text"), str):
        return str(given["text"])
    parts = given.get("content")
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list) or not all(map(_is_text_part, parts)):
        named = sorted({str(part.get("type"))[:40] for part in parts if isinstance(part, dict)}) if parts else []
        what = f"element {index} of {field_name} has {', '.join(named) if named else 'neither text nor content'}"
        raise BadInput(
            f"MultiModalParam is not supported: {what}.",
            allowed='Texts, {"text": "..."}, or {"content": [{"type": "text", "text": "..."}]}.',
            param=field_name,
            index=index,
        )
    return "".join(part["text"] for part in parts)


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in (None, "text") and isinstance(part.get("text"), str)


async def scored(
    door: Door,
    request: Request,
    body: ScoringFields,
    first: list[str],
    second: list[str],
    names: Sequence[str],
    length: Length | None = None,
) -> Done:
    """Scores of texts of one side with texts of the other.

    Args:
        names: What the request calls the two sides.
        length: What happens to long texts; None as `body` says.
    """
    notes = Notes.of(body)
    for side, name in zip((first, second), names, strict=True):
        door.allow(len(side), name)
    engine = calls.begin(door, request, body)
    with calls.renaming({"data_1": names[0], "data_2": names[1]}):
        length = length or lengths.of(body, engine.recipe.max_len, door.on_long)
        how = _options(engine, body, notes)
        renders = engine.recipe.pair_template is not None
        size = sum(map(len, first)) * len(second) if renders or how.max_tokens_per_query else 0
        size += sum(map(len, second)) if renders or how.max_tokens_per_doc else 0
        planned = await calls.aside(size, lambda: score.plan(engine.recipe, engine.tokenizer, first, second, how))
        submit = calls.submits(request, engine, length, body.priority)
        outcome = await calls.finish(request, Started.of(parts_of(planned.groups, submit)))
    finish = score.finish
    done = (
        finish(engine.recipe, planned, outcome)
        if planned.score_type == "cross-encoder"
        else await asyncio.to_thread(finish, engine.recipe, planned, outcome)
    )
    return Done(engine, outcome, done, calls.timing_headers(request, outcome) | notes.headers())


def _options(engine: Engine, body: ScoringFields, notes: Notes) -> score.Options:
    variables = dict(body.chat_template_kwargs or {})
    if body.chat_template is not None or "chat_template" in variables:
        raise BadInput(
            "The request brings its own template, which scores never take.",
            allowed="The template of scores is the server's --chat-template.",
            param="chat_template",
        )
    try:
        how = score.score_type(engine.recipe, body.score_type)
    except UnsupportedTask as error:
        # The reference has no such route for this model.
        raise Refusal(404, f"This model does not support the Scoring API. {error}", param=error.param) from error
    template = engine.recipe.pair_template if how == "cross-encoder" else None
    lists = listwise.serves(engine.recipe, how)
    shows = lists or (template is not None and templates.compiled(template).takes_instruction)
    if not shows and body.instruction:
        notes.ignored.append("instruction")
    if template is None and body.chat_template_kwargs and not lists:
        notes.ignored.append("chat_template_kwargs")
    return score.Options(
        use_activation=body.use_activation,
        max_tokens_per_query=body.max_tokens_per_query or 0,
        max_tokens_per_doc=body.max_tokens_per_doc or 0,
        score_type=body.score_type,
        weights=body.weights,
        query_input_type=body.query_input_type,
        document_input_type=body.document_input_type,
        query_adapter=body.query_adapter,
        document_adapter=body.document_adapter,
        template_kwargs=variables,
        instruction=(body.instruction or None) if shows else None,
    )


def _ranking(head: dict[str, Any], body: RerankRequest, documents: list[str], done: Done) -> Response:
    ranking = score.ranking(done.scores, documents, body.top_n)
    results: list[dict[str, Any]] = [
        {"index": found.index, "relevance_score": found.score}
        | ({"document": {"text": found.document, "multi_modal": None}} if body.return_documents is not False else {})
        for found in ranking
    ]
    num_tokens = done.outcome.num_tokens
    meta = RerankMeta(
        billed_units=BilledUnits(search_units=-(-len(documents) // _DOCUMENTS_PER_UNIT)),
        tokens=CountedTokens(input_tokens=num_tokens),
    )
    counted = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    answer = {**head, "object": "rerank", "results": results, "meta": msgspec.to_builtins(meta), "usage": counted}
    return replies.as_json(answer)


def _route(path: str, *, rerank: bool) -> Route:
    """A path that scores or ranks; the reference has several names for each."""
    return Route(
        "POST",
        path,
        answer_rerank if rerank else answer_score,
        "Documents from best to worst for a query." if rerank else "How well texts fit together.",
        VLLM,
        request=RerankRequest if rerank else ScoreRequest,
        response=RerankResponse if rerank else ScoreResponse,
        errors=CALL_ERRORS,
    )


ROUTES = (
    _route("/score", rerank=False),
    _route("/v1/score", rerank=False),
    _route("/rerank", rerank=True),
    _route("/v1/rerank", rerank=True),
    _route("/v2/rerank", rerank=True),
)
