"""The rest of the Cohere dialect: classification, tokens, names of models, keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput, ModelNotFound, UnsupportedTask
from ..tasks import classify, embed
from ..types import FloatArray
from ..uses import few_shot, score
from . import calls, cohere, replies, vectors, vllm
from .cohere import COHERE, Billed, CohereMeta
from .route import CALL_ERRORS, LOOKUP_ERRORS, Route
from .schemas import TokenId

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door


class Example(Struct, kw_only=True):
    """A text and its label."""

    text: str
    label: str


class CohereClassify(Struct, kw_only=True):
    """Texts to label: by the examples where the model is an embedder, by its own labels where it is a classifier."""

    inputs: list[str]
    examples: (
        Annotated[list[Example], Meta(description="One or more of each label, two labels or more; for embedders.")]
        | None
    ) = None
    model: str | None = None
    truncate: cohere.Truncate | None = None


class Confidence(Struct, kw_only=True):
    """How sure a label is."""

    confidence: float


class CohereClassification(Struct, kw_only=True):
    """The labels of one text, the best one first where there are several."""

    id: str
    input: str
    prediction: str
    predictions: list[str]
    confidence: float
    confidences: list[float]
    labels: dict[str, Confidence]
    classification_type: Literal["single-label", "multi-label"]


class CohereClassifications(Struct, kw_only=True):
    """Labels in input order."""

    id: str
    classifications: list[CohereClassification]
    meta: CohereMeta


class CohereTokenize(Struct, kw_only=True):
    """A text to split."""

    text: str
    model: str | None = None


class CohereTokens(Struct, kw_only=True):
    """Its tokens without special ones, and how the vocabulary spells them."""

    tokens: list[int]
    token_strings: list[str]
    meta: CohereMeta


class CohereDetokenize(Struct, kw_only=True):
    """Token ids to read."""

    tokens: list[TokenId]
    model: str | None = None


class CohereText(Struct, kw_only=True):
    """The text of token ids."""

    text: str
    meta: CohereMeta


class CohereModel(Struct, kw_only=True):
    """A name that requests may use, and for which routes."""

    name: str
    endpoints: list[str]
    finetuned: bool
    context_length: float
    tokenizer_url: str | None
    default_endpoints: list[str]


class CohereModels(Struct, kw_only=True):
    """All models and their aliases."""

    models: list[CohereModel]


class CohereKey(Struct, kw_only=True):
    """A key that got this far is valid."""

    valid: bool


async def classify_v1(door: Door, request: Request, body: CohereClassify) -> Response:
    """Answer `POST /v1/classify`."""
    if not body.inputs:
        raise BadInput("There are no inputs to classify.", allowed="It takes one or more.", param="inputs")
    door.allow(len(body.inputs), "inputs")
    engine = door.model(body.model)
    if classify.NAME in engine.recipe.tasks:
        return await _by_model(door, request, engine, body)
    return await _by_examples(door, request, vectors.embedder(door, body.model), body)


async def _by_model(door: Door, request: Request, engine: Engine, body: CohereClassify) -> Response:
    if body.examples:
        raise UnsupportedTask(
            f"{engine.name} is a classifier with labels of its own, which examples cannot change.",
            fix="Leave the examples out, or ask an embedder.",
            param="examples",
        )
    classifier = engine.recipe.classifier
    assert classifier is not None
    length = cohere.length_of(door, body.truncate)
    params = classify.Params(use_activation=True)
    outcome = await calls.run(request, engine, classify.NAME, body.inputs, params, length=length)
    assert not isinstance(outcome.rows, list)
    multi = classifier.activation != "softmax"
    answer = _classifications(request, body.inputs, outcome.rows, classifier.labels, multi=multi)
    return _answered(request, answer, calls.timing_headers(request, outcome))


async def _by_examples(door: Door, request: Request, engine: Engine, body: CohereClassify) -> Response:
    examples = body.examples or []
    labels = tuple(dict.fromkeys(one.label for one in examples))
    if len(labels) < 2:
        raise BadInput(
            f"The examples have {len(labels)} labels.",
            allowed=f"{engine.name} is an embedder, which tells two or more labels apart by one or more examples each.",
            param="examples",
        )
    texts = [*body.inputs, *(one.text for one in examples)]
    # Models that have a prompt for this want it; for the others there is nothing to warn of.
    params = embed.Params(prompt=cohere.prompt(engine.recipe, "classification", []))
    length = cohere.length_of(door, body.truncate)
    outcome = await calls.run(request, engine, embed.NAME, texts, params, length=length)
    assert not isinstance(outcome.rows, list)
    rows, known = np.split(outcome.rows, [len(body.inputs)])
    shares = few_shot.confidences(rows, known, [labels.index(one.label) for one in examples], len(labels))
    answer = _classifications(request, body.inputs, shares, labels, multi=False)
    return _answered(request, answer, calls.timing_headers(request, outcome))


def _classifications(
    request: Request, inputs: Sequence[str], rows: FloatArray, labels: Sequence[str], *, multi: bool
) -> CohereClassifications:
    found = []
    for index, (text, row) in enumerate(zip(inputs, rows.tolist(), strict=True)):
        order = sorted(range(len(row)), key=row.__getitem__, reverse=True)
        best = [at for at in order if row[at] >= 0.5] if multi else order[:1]
        found.append(
            CohereClassification(
                id=f"{request.state.request_id}-{index}",
                input=text,
                prediction=labels[order[0]],
                predictions=[labels[at] for at in best],
                confidence=row[order[0]],
                confidences=[row[at] for at in best],
                labels={label: Confidence(confidence=value) for label, value in zip(labels, row, strict=True)},
                classification_type="multi-label" if multi else "single-label",
            )
        )
    billed = CohereMeta(api_version=cohere.ApiVersion(version="1"), billed_units=Billed(classifications=len(inputs)))
    return CohereClassifications(id=request.state.request_id, classifications=found, meta=billed)


async def tokenize_v1(door: Door, request: Request, body: CohereTokenize) -> Response:
    """Answer `POST /v1/tokenize`."""
    found = await vllm.tokens_of(door.model(body.model), body.text, False, True)
    answer = CohereTokens(tokens=found.tokens, token_strings=found.token_strs or [], meta=_plain_meta())
    return _answered(request, answer)


async def detokenize_v1(door: Door, request: Request, body: CohereDetokenize) -> Response:
    """Answer `POST /v1/detokenize`."""
    text = await vllm.text_of(door.model(body.model), body.tokens)
    return _answered(request, CohereText(text=text, meta=_plain_meta()))


async def models(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /v1/models`."""
    return _answered(request, CohereModels(models=_models(door)))


async def model(door: Door, request: Request, body: None) -> Response:
    """Answer `GET /v1/models/{id}`; names may have slashes."""
    name = request.path_params["id"]
    found = next((one for one in _models(door) if one.name == name), None)
    if found is None:
        raise ModelNotFound(f"The model `{name}` does not exist.", param="model")
    return _answered(request, found)


async def check_key(door: Door, request: Request, body: None) -> Response:
    """Answer `POST /v1/check-api-key`; a wrong key never gets here."""
    return _answered(request, CohereKey(valid=True))


def _models(door: Door) -> list[CohereModel]:
    return [
        CohereModel(
            name=name,
            endpoints=_endpoints(engine),
            finetuned=False,
            context_length=float(engine.recipe.max_len),
            # Cohere's client would fetch it; without one it asks /v1/tokenize.
            tokenizer_url=None,
            default_endpoints=[],
        )
        for engine in door.engines()
        for name in (engine.name, *engine.aliases)
    ]


def _endpoints(engine: Engine) -> list[str]:
    tasks = engine.recipe.tasks
    can = {
        "embed": embed.NAME in tasks,
        "classify": embed.NAME in tasks or classify.NAME in tasks,
        "rerank": score.can_score(engine.recipe),
    }
    return [name for name, yes in can.items() if yes]


def _plain_meta() -> CohereMeta:
    return CohereMeta(api_version=cohere.ApiVersion(version="1"))


def _answered(request: Request, answer: Struct, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(answer), media_type=replies.JSON, headers=headers)


def _lookup(path: str, answer: Any, summary: str, request: type[Struct], response: type[Struct]) -> Route:
    return Route("POST", path, answer, summary, COHERE, request=request, response=response, errors=LOOKUP_ERRORS)


def _named(path: str, answer: Any, summary: str, response: type[Struct], errors: tuple[int, ...] = ()) -> Route:
    return Route("GET", path, answer, summary, COHERE, header=cohere.CLIENT, response=response, errors=errors)


ROUTES = (
    Route(
        "POST",
        "/v1/classify",
        classify_v1,
        "Labels of texts, by examples or by the model's own labels.",
        COHERE,
        request=CohereClassify,
        response=CohereClassifications,
        errors=CALL_ERRORS,
    ),
    _lookup("/v1/tokenize", tokenize_v1, "Token ids of a text, without special tokens.", CohereTokenize, CohereTokens),
    _lookup("/v1/detokenize", detokenize_v1, "The text of token ids.", CohereDetokenize, CohereText),
    _named("/v1/models", models, "Names that requests may use, for Cohere's own clients.", CohereModels),
    _named("/v1/models/{id:path}", model, "One of those names, for Cohere's own clients.", CohereModel, (404,)),
    Route("POST", "/v1/check-api-key", check_key, "Whether the key is valid.", COHERE, response=CohereKey),
)
