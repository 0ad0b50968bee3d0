"""Late chunking: one forward over a whole document, then one vector for each span of it.

Each span's vector knows what stands around the span. It is the mean of its tokens' vectors, as `token_embed` gives
them.
Source: Guenther et al. 2024 (arXiv 2409.04701).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .. import prompting
from ..errors import BadInput
from ..tasks import embed, token_embed
from ..types import Encoded, FloatArray

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

Unit = Literal["chars", "tokens"]
Span = tuple[int, int]

TASK = token_embed.NAME
_NUM_BOUNDS: Final = 2
_DOCUMENTS: Final = "A text and spans, or a list of texts."


@dataclass(frozen=True)
class Plan:
    """A document and its spans.

    Args:
        text: What the model reads.
        spans: Start and end of each span, the end not included.
        unit: What they count: characters of the text, or tokens with special ones.
        called: What errors call one of them: a span, or a piece where the caller gave pieces.
        of: What errors say after its number, for a document among several; else "".
    """

    text: str
    spans: tuple[Span, ...]
    unit: Unit
    called: str = "Span"
    of: str = ""


def plan(
    text: str | Sequence[str], spans: Sequence[Sequence[int]] | None, unit: Unit, separator: str, of: str = ""
) -> Plan:
    """Put a document and its spans together.

    Args:
        text: A document, or the pieces of one, which are joined and are the spans.
        spans: Of a document; None for pieces.
        separator: What stands between pieces.
        of: As in `Plan`.

    Raises:
        BadInput: There are no spans or pieces, or one is empty or out of order.
    """
    called = "Span" if isinstance(text, str) else "Piece"
    if unit not in ("chars", "tokens"):
        raise BadInput(f"unit={unit!r}.", allowed="It is chars or tokens.", param="unit")
    if isinstance(text, str) == (spans is None):
        raise BadInput(
            "A document needs spans, and a list of its pieces has none.",
            allowed=_DOCUMENTS,
            param="spans",
        )
    if not isinstance(separator, str):
        raise BadInput(f"separator={separator!r}.", allowed="It is a text.", param="separator")
    if not isinstance(text, str):
        if not isinstance(text, Sequence):
            raise BadInput(f"The document is of type {type(text).__name__}.", allowed=_DOCUMENTS, param="text")
        if unit != "chars" or not all(isinstance(piece, str) for piece in text):
            raise BadInput("Pieces are texts, and are counted in characters.", param="text")
        if "" in text:
            what = f"Piece {list(text).index('')}{of} is empty."
            raise BadInput(what, allowed="Each piece has text, of which a token is made.", param="spans")
        starts = np.cumsum([0, *(len(piece) + len(separator) for piece in text)]).tolist()
        spans = [(start, start + len(piece)) for start, piece in zip(starts, text, strict=False)]
        text = separator.join(text)
    checked = [_checked(span, index) for index, span in enumerate(_listed(spans))]
    if not checked:
        raise BadInput(f"There are no {called.lower()}s.", allowed="One or more.", param="spans")
    for index, (start, end) in enumerate(checked):
        if not 0 <= start < end or (unit == "chars" and end > len(text)):
            raise BadInput(
                f"Span {index}{of} goes from {start} to {end}.",
                allowed=f"It has a start and a later end, within the {len(text)} characters of the text.",
                param="spans",
            )
    return Plan(text, tuple(checked), unit, called, of)


def _listed(spans: Any) -> Sequence[Any]:
    given = spans.tolist() if isinstance(spans, np.ndarray) else spans
    if not isinstance(given, (list, tuple)):
        what = f"The spans are of type {type(given).__name__}."
        raise BadInput(what, allowed="A list of starts and ends.", param="spans")
    return given


def _checked(span: Any, index: int) -> Span:
    bounds = [operator.index(bound) for bound in span if _is_whole(bound)] if isinstance(span, (list, tuple)) else []
    if len(bounds) != _NUM_BOUNDS or len(span) != _NUM_BOUNDS:
        raise BadInput(f"Span {index} is {span!r}.", allowed="Two whole numbers, its start and its end.", param="spans")
    return bounds[0], bounds[1]


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def params(asked: embed.Params) -> token_embed.Params:
    """How the tokens are read: their vectors are finished after they were averaged."""
    given = {field.name: getattr(asked, field.name) for field in fields(asked)}
    return token_embed.Params(**{**given, "normalize": False, "as_embed": True})


def finish(
    recipe: Recipe,
    tokenizers: Mapping[str, Tokenizer],
    planned: Plan,
    rows_ND: FloatArray,
    encoded: Encoded,
    asked: embed.Params,
) -> FloatArray:
    """One vector for each span, `[spans, E]`.

    Args:
        tokenizers: Name of each route, "" where there are none -> its tokenizer.
        rows_ND: Of all tokens of the document, as `token_embed` gave them for `params`.
        encoded: Its tokens.

    Raises:
        BadInput: A span has no token, or the tokenizer does not know where its tokens are.
    """
    route = prompting.route(recipe, asked.input_type)
    recipe, tokenizer = recipe.by_route[route], tokenizers[route]
    prefix = asked.text_before(recipe)
    spans = planned.spans
    if planned.unit == "chars":
        places, before = tokenizer.places(prefix + planned.text, encoded)
        spans = tuple(_tokens_of(start + len(prefix), end + len(prefix), places, before) for start, end in spans)
    for index, (start, end) in enumerate(spans):
        if not start < end <= len(rows_ND):
            raise BadInput(
                f"{planned.called} {index}{planned.of} has no tokens, or ends after the last one.",
                allowed=f"The document has {len(rows_ND)} tokens, special ones included.",
                param="spans",
            )
    means = np.stack([rows_ND[start:end].mean(axis=0, dtype=np.float64) for start, end in spans])
    return embed.shape(recipe, means.astype(np.float32), asked)


def _tokens_of(start: int, end: int, places: NDArray[np.int64], before: int) -> Span:
    """The tokens that have a character of a span: the first one, and one past the last."""
    inside = np.flatnonzero((places[:, 1] > start) & (places[:, 0] < end))
    return (before + int(inside[0]), before + int(inside[-1]) + 1) if len(inside) else (0, 0)
