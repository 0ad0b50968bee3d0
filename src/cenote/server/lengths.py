"""Fields of a request that say what to do with long inputs, turned into the one inner record; and what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .. import options
from ..config import OnLong
from ..errors import BadInput
from ..tasks import embed
from ..types import Length, Outcome
from .schemas import CallFields, LengthFields

if TYPE_CHECKING:
    from ..recipe import Recipe

_NOTHING_SAID: Final = (None,) * 5


def of(body: CallFields, max_len: int, on_long: OnLong | None) -> Length:
    """What `body` says about long inputs, and `on_long` where it says nothing (None: refuse).

    Raises:
        BadInput: More than the `max_len` tokens of the model are asked for, or none.
    """
    return options.length_of(body.truncate_prompt_tokens, body.truncation_side, max_len, Length(on_long or "refuse"))


def of_arrays(body: LengthFields, task: str, recipe: Recipe, on_long: OnLong | None, most: int | None = None) -> Length:
    """The same where a request may say more about it.

    Args:
        most: A route's own limit of all tokens of an input, in one piece or in several; None for the model's.

    Raises:
        BadInput: Its fields exclude each other, or do not fit the task.
    """
    length = of(body, most or recipe.max_len, on_long)
    if said(body):
        _check(body, task)
        length = _asked(body, length, task, recipe, most)
    elif body.span_unit is not None:
        raise BadInput("The request has span_unit and no spans.", fix="Send both.", param="span_unit")
    return replace(length, limit=most) if length.limit is None and most is not None else length


def said(body: LengthFields) -> bool:
    """Whether a request has one of the fields, so that the answer says what was read."""
    return (body.on_long, body.side, body.limit, body.chunk_overlap, body.spans) != _NOTHING_SAID


def told(outcome: Outcome, index: int) -> dict[str, int]:
    """What was read of the input at `index`."""
    item = outcome.encoded[index]
    return {"tokens": len(item.ids), "cut_tokens": item.num_cut, "pieces": item.num_pieces}


def each_told(body: LengthFields, outcome: Outcome) -> list[dict[str, Any]] | None:
    """`told` of each input, where the request asks for it."""
    return [told(outcome, index) for index in range(len(outcome.encoded))] if said(body) else None


def _check(body: LengthFields, task: str) -> None:
    for new, old in (("side", "truncation_side"), ("limit", "truncate_prompt_tokens")):
        if getattr(body, new) is not None and getattr(body, old) is not None:
            what = f"Both {new} and {old} are given, which are one option."
            raise BadInput(what, fix="Give one of them.", param=old)
    if body.on_long not in (None, "cut") and body.truncate_prompt_tokens is not None:
        what = f"truncate_prompt_tokens={body.truncate_prompt_tokens} cuts, and on_long={body.on_long!r} does not."
        raise BadInput(what, fix="Give one of them.", param="truncate_prompt_tokens")
    if body.on_long == "chunk" and (task != embed.NAME or body.spans is not None):
        asked = "asks for spans" if body.spans is not None else f"is read as {task!r}"
        what = f"on_long='chunk' makes one vector of an input's pieces, and the request {asked}."
        raise BadInput(what, allowed="It is refuse or cut here.", param="on_long")


def _asked(body: LengthFields, length: Length, task: str, recipe: Recipe, most: int | None) -> Length:
    embeds = task == embed.NAME and body.spans is None
    way = body.on_long or length.on_long
    if body.on_long is None and way != "cut":
        way = "chunk" if embeds and (way == "chunk" or recipe.chunks) else "refuse"
    for name, belongs in (("side", "cut"), ("chunk_overlap", "chunk")):
        if getattr(body, name) is not None and way != belongs:
            what = f"{name}={getattr(body, name)!r} is for on_long={belongs!r}, and long inputs are to {way} here."
            raise BadInput(what, fix=f"Say on_long={belongs!r}, or leave it out.", param=name)
    largest = most if way == "chunk" else min(most or recipe.max_len, recipe.max_len)
    if body.limit is not None and not 1 <= body.limit <= (largest or body.limit):
        allowed = f"At least 1 and at most {largest}." if largest else "At least 1."
        raise BadInput(f"limit={body.limit}.", allowed=allowed, param="limit")
    return Length(
        way,
        body.side or length.side,
        length.limit if body.limit is None else body.limit,
        body.chunk_overlap,
        explicit=body.on_long is not None or length.explicit,
    )


def of_vectors(length: Length, recipe: Recipe, *, said: bool) -> Length:
    """`length` for vectors of texts: the model's own limit of them counts too, and where it embeds in pieces, it does.

    Args:
        said: Whether the request or the server says what happens to long texts, so that a model's switch for pieces
            does not.
    """
    limits = [limit for limit in (length.limit, recipe.max_embed_len) if limit is not None]
    on_long = "chunk" if recipe.chunks and not said else length.on_long
    return replace(length, on_long=on_long, limit=min(limits, default=None))
