"""The dialect of Hugging Face's inference services: one address, and a task told apart by the body and the model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import Response

from .. import inputs
from ..activations import activate
from ..errors import NoInputs, UnsupportedTask
from ..tasks import classify, token_classify
from ..types import Length
from ..uses import entities, fill_mask, zero_shot
from . import arrays, bodies, calls, tei, tei_more
from .dialect import Dialect, Failure
from .route import Route
from .tei import Answered

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door


class HfError(Struct, kw_only=True):
    """An error as Hugging Face's client reads it."""

    error: str
    error_type: tei.ErrorType


def tell(failure: Failure) -> HfError:
    """The body of an error."""
    told = tei.tell(failure)
    return HfError(error=told.error, error_type=told.error_type)


HF = Dialect("hf", HfError, tell, tei.TEI.statuses)

_PIPELINE: Final = "/pipeline/"
"""Stands in a path between a model and the task that is asked of it."""


class InferenceRequest(tei_more.AnyRequest, kw_only=True):
    """What a task is done with; those of vectors have their options beside it, the others in `parameters`."""

    encoding_format: (
        Annotated[Literal["float", "base64"], Meta(description="Of vectors: numbers, or float32 as base64.")] | None
    ) = None
    options: Annotated[dict[str, Any], Meta(description="Accepted and without effect.")] | None = None


class TextClassificationParameters(Struct, kw_only=True):
    """`parameters` of a classification."""

    top_k: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class TokenClassificationParameters(Struct, kw_only=True):
    """`parameters` of a search for entities."""

    aggregation_strategy: entities.Aggregation = "simple"
    ignore_labels: list[str] = msgspec.field(default_factory=lambda: ["O"])
    stride: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class ZeroShotParameters(Struct, kw_only=True):
    """`parameters` of a classification by any labels."""

    candidate_labels: str | list[str]
    hypothesis_template: str = zero_shot.TEMPLATE
    multi_label: bool = False


class FillMaskParameters(Struct, kw_only=True):
    """`parameters` of what stands for a mask."""

    targets: str | list[str] | None = None
    top_k: Annotated[int, Meta(ge=1, le=2**31)] = 5


class Entity(Struct, kw_only=True):
    """A stretch of a text, or one token of it with its `index`, and its label."""

    entity_group: str | UnsetType = UNSET
    entity: str | UnsetType = UNSET
    index: int | UnsetType = UNSET
    score: float
    word: str
    start: int
    end: int


class Fill(Struct, kw_only=True):
    """A word in the place of a mask."""

    score: float
    token: int
    token_str: str
    sequence: str


class _Asked:
    """One request, once its model and its task are known."""

    def __init__(self, door: Door, request: Request, body: InferenceRequest) -> None:
        name, _, self.task = str(request.path_params.get("id", "")).partition(_PIPELINE)
        self.door, self.request = door, request
        self.body = structs.replace(body, model=name or body.model)
        self.parameters = dict(body.parameters or {})
        self.engine = door.model(self.body.model)

    @property
    def num_chars(self) -> int:
        """How long its inputs are together."""
        return sum(len(text) for text in self.texts()[0] if isinstance(text, str))

    def texts(self) -> tuple[list[Any], bool]:
        """The inputs, whatever they are, and whether there is one alone."""
        given = self.body.inputs
        if given == []:
            raise NoInputs("There are no inputs.", allowed="It takes one or more.", param="inputs")
        return ([given], True) if not isinstance(given, list) else (given, False)


async def answer(door: Door, request: Request, body: InferenceRequest) -> Response:
    """Answer `POST /` and `POST /models/{id}`."""
    door.allow_listed(body.inputs, "inputs")
    asked = _Asked(door, request, body)
    task = asked.task or task_of(asked.engine, asked.body.inputs, asked.parameters)
    if task not in _TASKS:
        raise UnsupportedTask(f"The task {task[:64]} is not served.", allowed=f"Served are {', '.join(_TASKS)}.")
    answered = await _TASKS[task](asked)
    response = await tei.respond(answered)
    if body.options:
        response.headers["x-ignored-fields"] = "options"
    return response


def task_of(engine: Engine, given: Any, parameters: Mapping[str, Any]) -> str:
    """The task that a body is for, by its own form first, then by what the model is."""
    if isinstance(given, dict) and "source_sentence" in given:
        return "sentence-similarity"
    if "candidate_labels" in parameters:
        return "zero-shot-classification"
    classifier = engine.recipe.classifier
    if classifier is not None:
        return "token-classification" if classifier.head == "token" else "text-classification"
    mask = engine.tokenizer.special_tokens.get("mask_token") if engine.recipe.masked_lm else None
    texts = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if mask is not None and any(isinstance(text, str) and mask in text for text in texts):
        return "fill-mask"
    return "feature-extraction"


async def _vectors(asked: _Asked) -> Answered:
    fields = {name: value for name, value in structs.asdict(asked.body).items() if value is not None}
    body = bodies.converted(asked.parameters | fields, tei.EmbedRequest)
    answered = await tei.embedded(asked.door, asked.request, body)
    if asked.body.encoding_format == "base64":
        return replace(answered, value=arrays.packed(np.asarray(answered.outcome.rows)))
    return answered


async def _similarity(asked: _Asked) -> Answered:
    how = bodies.converted({**asked.parameters, "model": asked.body.model}, tei.SimilarityParameters, "parameters")
    sides = bodies.converted({"inputs": asked.body.inputs}, tei.SimilarityRequest).inputs
    return await tei.compared(asked.door, asked.request, tei.SimilarityRequest(inputs=sides, parameters=how))


async def _classes(asked: _Asked) -> Answered:
    how = bodies.converted(asked.parameters, TextClassificationParameters, "parameters")
    given = inputs.parse(asked.body.inputs)
    names = {None: None, "none": False}
    function = how.function_to_apply
    raw = function not in names
    params = classify.Params(use_activation=None if raw else names[function], raw_logits=raw)
    answered = await tei.ran(asked.door, asked.request, asked.body, asked.engine, classify.NAME, given, params)
    rows, classifier = np.asarray(answered.outcome.rows), asked.engine.recipe.classifier
    assert classifier is not None
    if raw:
        rows = activate(rows, replace(classifier, activation=str(function)), use_activation=True)
    return replace(answered, value=[tei.predictions(row, classifier.labels, how.top_k) for row in rows])


async def _entities(asked: _Asked) -> Answered:
    how = bodies.converted(asked.parameters, TokenClassificationParameters, "parameters")
    texts, alone = asked.texts()
    length = tei.length_of(asked.door, asked.body)
    if how.stride is not None:
        length = Length("chunk", overlap=how.stride)
    options = entities.Options(how.aggregation_strategy, how.ignore_labels)
    recipe, tokenizer = asked.engine.recipe, asked.engine.tokenizer
    planned = await calls.aside(asked.num_chars, entities.plan, recipe, tokenizer, texts, options, length)
    given = (entities.TASK, planned.inputs, entities.PARAMS)
    outcome = await calls.run(asked.request, asked.engine, *given, length=Length(), where=planned.text_of_window)
    listed = await asyncio.to_thread(entities.finish, recipe, tokenizer, planned, outcome.rows)
    found = [[entity.as_dict() for entity in one] for one in listed]
    told = replace(outcome, encoded=planned.encoded())
    return Answered(found[0] if alone else found, outcome, calls.timing_headers(asked.request, told))


async def _zero_shot(asked: _Asked) -> Answered:
    how = bodies.converted(asked.parameters, ZeroShotParameters, "parameters")
    texts, alone = asked.texts()
    labels, template = how.candidate_labels, how.hypothesis_template
    asked.door.allow(
        len(texts) * (labels.count(",") + 1 if isinstance(labels, str) else len(labels)), "candidate_labels"
    )
    planned = zero_shot.plan(asked.engine.recipe, texts, labels, how.multi_label, template)
    params = classify.Params(**zero_shot.OPTIONS)
    given = (zero_shot.TASK, planned.pairs, params, planned.named_at(range(len(planned.pairs))))
    answered = await tei.ran(asked.door, asked.request, asked.body, asked.engine, *given)
    found = [
        [{"label": label, "score": score} for label, score in zip(one.labels, one.scores, strict=True)]
        for one in zero_shot.finish(planned, answered.outcome.rows)
    ]
    return replace(answered, value=found[0] if alone else found)


async def _fills(asked: _Asked) -> Answered:
    how = bodies.converted(asked.parameters, FillMaskParameters, "parameters")
    texts, alone = asked.texts()
    tokenizer = asked.engine.tokenizer
    planned = fill_mask.plan(asked.engine.recipe, tokenizer, texts, how.top_k, how.targets)
    params = token_classify.Params(**planned.options)
    answered = await tei.ran(asked.door, asked.request, asked.body, asked.engine, token_classify.NAME, texts, params)
    found: Any = await asyncio.to_thread(fill_mask.finish, planned, tokenizer, answered.outcome)
    return replace(answered, value=_plain(found[0] if alone else found))


def _plain(fills: Any) -> Any:
    return [_plain(one) if isinstance(one, list) else asdict(one) for one in fills]


_TASKS = {
    "feature-extraction": _vectors,
    "sentence-similarity": _similarity,
    "text-classification": _classes,
    "token-classification": _entities,
    "zero-shot-classification": _zero_shot,
    "fill-mask": _fills,
}


def _route(path: str, request: type[Struct], response: Any, answer: Any, *keys: str) -> Route:
    return Route(
        "POST",
        path,
        answer,
        "A task of a pipeline, told apart by the body and by what the model is.",
        HF,
        keys=frozenset(keys),
        request=request,
        response=response,
        errors=tei.CALL_ERRORS,
    )


_ANSWERS = (
    tei.Vectors,
    tei.Scores,
    list[list[tei.Prediction]],
    list[str],
    list[Entity | list[Entity]],
    list[tei.Prediction],
    list[Fill | list[Fill | list[Fill]]],
)

ROUTES = (
    _route("/", tei.TeiRerankRequest, list[tei.Rank], tei.answering(tei.reranked), "query", "texts"),
    _route("/", InferenceRequest, _ANSWERS, answer),
    _route("/models/{id:path}", InferenceRequest, _ANSWERS, answer),
)
