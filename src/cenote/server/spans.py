"""Late chunking over HTTP: one forward over each input, and a vector for each span of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request

from .. import options
from ..errors import BadInput
from ..tasks import embed
from ..types import Input, Length, Outcome
from ..uses import late_chunks
from . import calls, lengths
from .schemas import LengthFields

if TYPE_CHECKING:
    from ..engine import Engine


async def read(
    request: Request,
    engine: Engine,
    body: LengthFields,
    given: Sequence[Input],
    params: embed.Params,
    length: Length,
) -> tuple[Outcome, list[dict[str, Any]]]:
    """The vectors of all spans, input by input, as the rows of an outcome, and what is told of each.

    Raises:
        BadInput: There is not a list of spans for each input, one is no span, or an input is no text.
        UnsupportedTask: The model has no vectors of tokens.
    """
    assert body.spans is not None
    if len(body.spans) != len(given):
        what = f"There are spans for {len(body.spans)} inputs, and {len(given)} inputs."
        raise BadInput(what, allowed="One list of spans for each input.", param="spans")
    if not all(isinstance(text, str) for text in given):
        raise BadInput("An input is no text.", allowed="Texts have spans.", param="input")
    unit = body.span_unit or "chars"
    planned = [
        late_chunks.plan(str(text), spans, unit, "", f" of input {at}" if len(given) > 1 else "")
        for at, (text, spans) in enumerate(zip(given, body.spans, strict=True))
    ]
    outcome = await pooled(request, engine, planned, params, length, body.priority)
    told = [
        {"input": index, "span": list(span), **lengths.told(outcome, index)}
        for index, one in enumerate(planned)
        for span in one.spans
    ]
    return outcome, told


async def pooled(
    request: Request,
    engine: Engine,
    planned: Sequence[late_chunks.Plan],
    params: embed.Params,
    length: Length,
    priority: int = 0,
) -> Outcome:
    """A vector of each span of each document, all in a row, as the rows of an outcome.

    Raises:
        BadInput: A span has no token, or a document is longer than the model.
        UnsupportedTask: The model has no vectors of tokens.
    """
    options.check_served(late_chunks.TASK, engine.recipe)
    params.check(engine.recipe)
    texts = [one.text for one in planned]
    task, how = late_chunks.TASK, late_chunks.params(params)
    outcome = await calls.run(request, engine, task, texts, how, length=length, priority=priority)

    def finished() -> list[Any]:
        both = zip(planned, outcome.rows, outcome.encoded, strict=True)
        return [late_chunks.finish(engine.recipe, engine.tokenizers, *one, params) for one in both]

    return replace(outcome, rows=np.concatenate(await asyncio.to_thread(finished)))
