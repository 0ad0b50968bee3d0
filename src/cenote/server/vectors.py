"""What dialects of vectors share: a call of an embedder, and its rows in the forms that a request asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from .. import calibration
from ..errors import UnsupportedTask
from ..tasks import embed
from ..types import Input, Length, Outcome
from ..uses import late_chunks
from . import arrays, calls, lengths, prompts, spans
from .notes import Notes

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

Form: TypeAlias = Literal["float", "int8", "uint8", "binary", "ubinary"]
FormOrBase64: TypeAlias = Form | Literal["base64"]


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors that a call gave.

    Args:
        engine: The model.
        params: What they were made with.
        outcome: What the call gave; its rows are the vectors, and its other fields tell about the inputs.
    """

    engine: Engine
    params: embed.Params
    outcome: Outcome

    @property
    def num_bytes(self) -> int:
        """Size of the rows, about as large as their answer."""
        return sum(row.nbytes for row in self.outcome.rows)

    async def in_form(self, form: str, warnings: list[str]) -> NDArray[Any]:
        """The rows as float32, or in fewer bits; a warning where one byte a number has no ranges of its own."""
        rows = np.asarray(self.outcome.rows)
        if form == "float":
            return rows
        # The first one-byte vectors wait for the sample.
        fewer, warning = await asyncio.to_thread(calibration.quantized, self.engine, rows, form, self.params)
        warnings += [warning] if warning and warning not in warnings else []
        return fewer

    async def in_forms(self, forms: Iterable[str], warnings: list[str]) -> dict[str, Any]:
        """The rows in several forms by name; `base64` is that of float32."""
        found: dict[str, Any] = {}
        for name in dict.fromkeys(forms):
            rows = await self.in_form("float" if name == "base64" else name, warnings)
            found[name] = await calls.aside(rows.nbytes, arrays.packed, rows) if name == "base64" else rows
        return found

    def headers(self, request: Request, notes: Notes) -> dict[str, str]:
        """What tells about the call."""
        return calls.timing_headers(request, self.outcome) | notes.headers() | calls.model_headers(self.engine)


def by_input(forms: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `in_forms` gave, as one object per input."""
    return [dict(zip(forms, values, strict=True)) for values in zip(*forms.values(), strict=True)]


def embedder(door: Door, name: str | None) -> Engine:
    """The model of that name.

    Raises:
        ModelNotFound: There is none.
        UnsupportedTask: It is no embedder.
    """
    engine = door.model(name)
    if embed.NAME not in engine.recipe.tasks:
        raise UnsupportedTask(
            f"{engine.name} is no embedder.", allowed=f"It can do {', '.join(engine.recipe.tasks)}.", param="model"
        )
    return engine


def params_of(
    engine: Engine,
    input_type: str | None,
    notes: Notes,
    kind: type[embed.Params] = embed.Params,
    *,
    field: str,
    **more: Any,
) -> embed.Params:
    """Options of a call whose request says what its texts are, in a field of that name."""
    chosen = prompts.by_type(engine.recipe, input_type, notes, field)
    return kind(prompt_name=chosen.prompt_name, prompt=chosen.prompt, input_type=input_type, **more)


async def embedded(
    door: Door,
    request: Request,
    engine: Engine,
    inputs: Sequence[Input],
    params: embed.Params,
    length: Length,
    *,
    said: bool,
    priority: int = 0,
) -> Vectors:
    """A vector of each input.

    Args:
        length: What happens to long ones.
        said: Whether it is what the request says, and no default of its dialect.
    """
    door.allow(len(inputs), "prompts")
    length = replace(length, explicit=said)
    length = lengths.of_vectors(length, engine.recipe, said=said or door.on_long is not None)
    outcome = await calls.run(request, engine, embed.NAME, inputs, params, length=length, priority=priority)
    return Vectors(engine, params, outcome)


async def late_chunked(
    door: Door, request: Request, engine: Engine, documents: Sequence[Sequence[str]], params: embed.Params
) -> Vectors:
    """A vector of each chunk of each document, which the model reads as one text; all chunks in a row.

    Raises:
        BadInput: A chunk is empty, or a document is longer than the model.
    """
    door.allow(sum(map(len, documents)), "spans")
    size = sum(len(chunk) for chunks in documents for chunk in chunks)
    of = [f" of document {at}" if len(documents) > 1 else "" for at in range(len(documents))]

    def plans() -> list[late_chunks.Plan]:
        return [late_chunks.plan(chunks, None, "chars", " ", one) for chunks, one in zip(documents, of, strict=True)]

    planned = await calls.aside(size, plans)
    return Vectors(engine, params, await spans.pooled(request, engine, planned, params, Length("refuse")))
