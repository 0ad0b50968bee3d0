"""`/classify`: labels and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import UnsupportedTask
from ..tasks import classify
from ..types import Outcome
from . import arrays, calls, lengths, prompts, replies
from .dialect import VLLM
from .notes import Notes
from .route import CALL_ERRORS, Route
from .schemas import PromptFields, Usage

if TYPE_CHECKING:
    from .door import Door


class ClassificationRequest(PromptFields, kw_only=True):
    """Texts, pairs, token ids or conversations to classify."""


class Classification(Struct, kw_only=True):
    """One value per label, in the order of the model's labels, and the label with the largest one."""

    index: int
    label: str | None
    probs: list[float]
    num_classes: int


class ClassificationResponse(Struct, kw_only=True):
    """Classes in input order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classification]
    usage: Usage


async def answer(door: Door, request: Request, body: PromptFields) -> Response:
    """Answer `POST /classify`."""
    with calls.renaming(prompts.INNER_NAMES):
        return await _answer(door, request, body)


async def _answer(door: Door, request: Request, body: PromptFields) -> Response:
    engine = calls.begin(door, request, body)
    classifier = engine.recipe.classifier
    if classifier is None or classify.NAME not in engine.recipe.tasks:
        raise UnsupportedTask(
            f"The model does not support Classification API: {engine.name} is no classifier of texts.",
            allowed=f"Supported tasks: {engine.recipe.tasks}.",
            param="model",
        )
    length = lengths.of(body, engine.recipe.max_len, door.on_long)
    notes = Notes.of(body)
    given = await prompts.read(door, engine, body, notes)
    params = classify.Params(body.use_activation, given.prompt_name, given.prompt, given.add_special_tokens)
    outcome = await calls.run(
        request, engine, classify.NAME, given.inputs, params, length=length, priority=body.priority
    )
    head = replies.head("classify", request, body.model or engine.name)
    size = sum(row.nbytes for row in outcome.rows)
    response = await calls.aside(size, lambda: replies.listed(head, _data(outcome, classifier.labels), outcome))
    replies.tell(response, calls.timing_headers(request, outcome) | notes.headers())
    return response


def _data(outcome: Outcome, labels: tuple[str, ...]) -> list[dict[str, object]]:
    return [
        {"index": index, "label": labels[int(row.argmax())], "probs": row, "num_classes": len(labels)}
        for index, row in enumerate(arrays.numbers(outcome.rows))
    ]


ROUTES = (
    Route(
        "POST",
        "/classify",
        answer,
        "Labels of texts, with their values.",
        VLLM,
        request=ClassificationRequest,
        response=ClassificationResponse,
        errors=CALL_ERRORS,
    ),
)
