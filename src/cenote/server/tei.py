"""The dialect of text-embeddings-inference: vectors, classes and rankings. `tei_more` has its other routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from .. import inputs, prompting
from ..errors import BadInput, NoInputs
from ..pieces import Named
from ..sparse import parted
from ..tasks import classify, embed, sparse, token_embed
from ..types import FloatArray, Input, Length, Outcome, Pair, Tokens
from ..uses import score, similarity
from . import calls, lengths, replies, scoring
from .dialect import Dialect, Failure
from .route import Answer, Route
from .schemas import TokenId

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

ErrorType: TypeAlias = Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Empty"]

_TYPES: dict[str, ErrorType] = {
    "no_inputs": "Empty",
    "overloaded": "Overloaded",
    "unavailable": "Unhealthy",
    "deadline": "Backend",
    "forward_failed": "Backend",
    "not_finite": "Backend",
    "internal": "Backend",
}
"""Kind of a failure -> its type; all others are `Validation`."""

_STATUSES = {
    **dict.fromkeys(("bad_input", "too_long", "unsupported_task", "bad_body"), 422),
    **dict.fromkeys(("forward_failed", "not_finite"), 424),
}

CALL_ERRORS = (400, 404, 413, 415, 422, 424, 429, 500, 503, 504)
"""Statuses of a route that runs a model."""
LOOKUP_ERRORS = (400, 404, 413, 415, 422, 503)
"""Statuses of a route that takes a body and runs no model."""


class TeiError(Struct, kw_only=True):
    """An error as clients of text-embeddings-inference read it."""

    error: str
    error_type: ErrorType


def tell(failure: Failure) -> TeiError:
    """The body of an error."""
    return TeiError(error=failure.message, error_type=_TYPES.get(failure.kind, "Validation"))


TEI = Dialect("tei", TeiError, tell, _STATUSES)

Vectors: TypeAlias = list[list[float]]
TokenRows: TypeAlias = list[list[list[float]]]
Scores: TypeAlias = list[float]


class Fields(Struct, kw_only=True):
    """What every call may say."""

    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    truncate: (
        Annotated[bool, Meta(description="Cut longer texts, or refuse them; unset, as `--on-long` says, else cut.")]
        | None
    ) = None
    truncation_direction: (
        Annotated[Literal["Left", "left", "Right", "right"], Meta(description="The end that is cut off.")] | None
    ) = None


class TextsRequest(Fields, kw_only=True):
    """Texts or token ids."""

    inputs: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description="A text, token ids, or a list of those; ids get the special tokens that they lack."),
    ]
    prompt_name: Annotated[str, Meta(description="Name of one of the model's prompts.")] | None = None


class EmbedRequest(TextsRequest, kw_only=True):
    """Texts or token ids to embed."""

    normalize: Annotated[bool, Meta(description="Whether vectors have unit length; unset, yes.")] | None = None
    dimensions: Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None = None


class Weight(Struct, kw_only=True):
    """One dimension of a sparse vector that is not zero."""

    index: int
    value: float


class PredictRequest(Fields, kw_only=True):
    """Texts or pairs of texts to classify."""

    inputs: Annotated[
        str | list[str | list[str]],
        Meta(description="A text, or a pair as a list of two; several as a list of lists of one or two."),
    ]
    raw_scores: Annotated[bool, Meta(description="Leave out the activation.")] = False


class Prediction(Struct, kw_only=True):
    """One label."""

    score: float
    label: str


class TeiRerankRequest(Fields, kw_only=True):
    """A query, and texts to rank by it."""

    query: str
    texts: list[str]
    raw_scores: Annotated[bool, Meta(description="Leave out the activation of a cross-encoder.")] = False
    return_text: Annotated[bool, Meta(description="Give the texts back too.")] = False
    top_n: Annotated[int, Meta(ge=0, le=2**63 - 1, description="How many to give back; unset or 0, all.")] | None = None


class Rank(Struct, kw_only=True):
    """One text of a ranking; `index` is its place in the request."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class Sentences(Struct, kw_only=True):
    """A text, and those it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Fields, kw_only=True):
    """How texts are embedded."""

    prompt_name: Annotated[str, Meta(description="Name of one of the model's prompts.")] | None = None


class SimilarityRequest(Struct, kw_only=True):
    """Texts to compare, by the cosine of their vectors."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What a body is answered with, before it becomes a response.

    Args:
        value: Plain values and arrays.
        outcome: What the call gave.
        headers: Headers that tell about it.
    """

    value: Any
    outcome: Outcome
    headers: dict[str, str]


def length_of(door: Door, body: Fields) -> Length:
    """What happens to long texts: they are cut, where neither request nor server says otherwise."""
    side: Any = (body.truncation_direction or "right").lower()
    if body.truncate is None:
        return Length(door.on_long or "cut", side)
    return Length("cut" if body.truncate else "refuse", side)


async def embedded(door: Door, request: Request, body: EmbedRequest) -> Answered:
    """Vectors: `float32 [N, E]`."""
    engine, given = _texts(door, body)
    params = embed.Params(
        normalize=body.normalize is not False,
        dimensions=body.dimensions,
        prompt_name=body.prompt_name,
        # Clients of these routes have no other way to say what the texts are.
        adapter=prompting.adapter(engine.recipe, body.prompt_name),
    )
    return await ran(door, request, body, engine, embed.NAME, given, params)


async def embedded_all(door: Door, request: Request, body: TextsRequest) -> Answered:
    """The rows of each text's tokens, as the pooling gets them."""
    engine, given = _texts(door, body)
    adapter = prompting.adapter(engine.recipe, body.prompt_name)
    params = token_embed.Params(raw=True, prompt_name=body.prompt_name, adapter=adapter)
    return await ran(door, request, body, engine, token_embed.NAME, given, params)


async def embedded_sparse(door: Door, request: Request, body: TextsRequest) -> Answered:
    """What is not zero of sparse vectors."""
    engine, given = _texts(door, body)
    answered = await ran(door, request, body, engine, sparse.NAME, given, sparse.Params(prompt_name=body.prompt_name))
    return await calls.aside(sum(row.nbytes for row in answered.outcome.rows), _weighed, answered)


def _weighed(answered: Answered) -> Answered:
    parts = [parted(row) for row in answered.outcome.rows]
    found = [
        [{"index": index, "value": value} for index, value in zip(at.tolist(), values.tolist(), strict=True)]
        for at, values in parts
    ]
    return replace(answered, value=found)


async def predicted(door: Door, request: Request, body: PredictRequest) -> Answered:
    """Labels from the highest score to the lowest, of one text or of several."""
    door.allow_listed(body.inputs, "inputs")
    given, alone = sequences(body.inputs)
    params = classify.Params(use_activation=False if body.raw_scores else None)
    answered = await ran(door, request, body, door.model(body.model), classify.NAME, given, params)
    labels = labels_of(door.model(body.model))
    found = [predictions(row, labels) for row in answered.outcome.rows]
    return replace(answered, value=found[0] if alone else found)


async def reranked(door: Door, request: Request, body: TeiRerankRequest) -> Answered:
    """Texts from best to worst."""
    if not body.texts:
        raise NoInputs("There are no texts to rank.", allowed="It takes one or more.", param="texts")
    recipe = door.model(body.model).recipe
    raw = body.raw_scores and score.score_type(recipe) == "cross-encoder"
    how = scoring.ScoringFields(model=body.model, use_activation=False if raw else None)
    sides, length = ("query", "texts"), length_of(door, body)
    done = await scoring.scored(door, request, how, [body.query], body.texts, sides, length)
    found: list[dict[str, Any]] = [
        {"index": one.index, "score": one.score} | ({"text": one.document} if body.return_text else {})
        for one in score.ranking(done.scores, body.texts, body.top_n)
    ]
    num_chars = sum(map(len, body.texts)) + len(body.query)
    return Answered(found, done.outcome, done.headers | _counted(done.outcome, num_chars))


async def compared(door: Door, request: Request, body: SimilarityRequest) -> Answered:
    """The cosine of one text with each of the others."""
    if not body.inputs.sentences:
        raise NoInputs("There are no sentences to compare with.", allowed="It takes one or more.", param="sentences")
    door.allow(len(body.inputs.sentences), "sentences")
    how = body.parameters or SimilarityParameters()
    adapter = prompting.adapter(door.model(how.model).recipe, how.prompt_name)
    params = embed.Params(normalize=True, prompt_name=how.prompt_name, adapter=adapter)
    given = [body.inputs.source_sentence, *body.inputs.sentences]
    answered = await ran(door, request, how, door.model(how.model), embed.NAME, given, params)
    rows = np.asarray(answered.outcome.rows)
    others = rows[1:]
    cosines = similarity.dot(np.broadcast_to(rows[:1], others.shape), others)
    return replace(answered, value=cosines)


async def ran(
    door: Door,
    request: Request,
    body: Fields,
    engine: Engine,
    task: str,
    given: Sequence[Input],
    params: Any,
    named: Named | None = None,
) -> Answered:
    """The rows of a call; `named` is as in `calls.run`."""
    length = length_of(door, body)
    if task == embed.NAME:
        length = lengths.of_vectors(length, engine.recipe, said=body.truncate is not None or door.on_long is not None)
    outcome = await calls.run(request, engine, task, given, params, length=length, named=named)
    headers = calls.timing_headers(request, outcome) | _counted(outcome, sum(map(_num_chars, given)))
    return Answered(outcome.rows, outcome, headers | calls.model_headers(engine))


async def respond(answered: Answered) -> Response:
    """The answer as JSON."""
    size = sum(row.nbytes for row in answered.outcome.rows)
    response = await calls.aside(size, replies.as_json, answered.value)
    replies.tell(response, answered.headers)
    return response


def sequences(given: str | Sequence[str | Sequence[str]]) -> tuple[list[Input], bool]:
    """What is to be classified, and whether it is one thing and no list.

    Raises:
        BadInput: A list has not one text or two.
    """
    if isinstance(given, str):
        return [given], True
    if given and all(isinstance(one, str) for one in given):
        return [_sequence(given, 0)], True
    return [_sequence(one, index) for index, one in enumerate(given)], False


def _sequence(texts: Any, index: int) -> Input:
    if isinstance(texts, str) or len(texts) not in (1, 2):
        what = "a text among lists" if isinstance(texts, str) else f"a list of {len(texts)} texts"
        raise BadInput(
            f"Element {index} of inputs is {what}.",
            allowed="A list of one text is a text, and one of two is a pair.",
            fix='Send several texts as [["one"], ["another"]].',
            param="inputs",
            index=index,
        )
    return Pair(*texts) if len(texts) == 2 else str(texts[0])


def labels_of(engine: Engine) -> tuple[str, ...]:
    """Names of its labels; none where it is no classifier."""
    return engine.recipe.classifier.labels if engine.recipe.classifier else ()


def predictions(row: FloatArray, labels: Sequence[str], top_k: int | None = None) -> list[dict[str, Any]]:
    """Labels with their scores, the highest first; at most `top_k`."""
    best = np.argsort(-row, kind="stable")[:top_k]
    return [{"score": row[at], "label": labels[at]} for at in best.tolist()]


def _texts(door: Door, body: TextsRequest) -> tuple[Engine, list[Input]]:
    door.allow_listed(body.inputs, "inputs")
    engine = door.model(body.model)
    frame = engine.tokenizer.frame
    given = inputs.parse(body.inputs)
    return engine, [Tokens(frame.put_around(one.ids)) if isinstance(one, Tokens) else one for one in given]


def _num_chars(given: Input) -> int:
    if isinstance(given, Pair):
        return len(given.text) + len(given.text_pair)
    return len(given) if isinstance(given, str) else 0


def _counted(outcome: Outcome, num_chars: int) -> dict[str, str]:
    compute_ms = (outcome.tokenize_s + outcome.inference_s) * 1e3
    return {
        "x-compute-time": f"{compute_ms:.3f}",
        "x-compute-characters": str(num_chars),
        "x-compute-tokens": str(outcome.num_tokens),
    }


def answering(work: Any) -> Answer:
    """What answers a route by `work`, which gives an `Answered`."""

    async def answer(door: Door, request: Request, body: Any) -> Response:
        return await respond(await work(door, request, body))

    return answer


def _route(path: str, work: Any, summary: str, request: type[Struct], response: Any, *keys: str) -> Route:
    return Route(
        "POST",
        path,
        answering(work),
        summary,
        TEI,
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=CALL_ERRORS,
    )


ROUTES = (
    _route("/embed", embedded, "Vectors of texts.", EmbedRequest, Vectors),
    _route("/embed_all", embedded_all, "The rows of each token, before pooling.", TextsRequest, TokenRows),
    _route("/embed_sparse", embedded_sparse, "Sparse vectors of texts.", TextsRequest, list[list[Weight]]),
    _route(
        "/predict",
        predicted,
        "Labels of texts or pairs; of one alone a plain list.",
        PredictRequest,
        list[Prediction | list[Prediction]],
    ),
    _route("/rerank", reranked, "Texts from best to worst for a query.", TeiRerankRequest, list[Rank], "texts"),
    _route("/similarity", compared, "The cosine of a text with others.", SimilarityRequest, Scores),
)
