"""Fields of a request that say what to do with long inputs, turned into the one inner record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import options
from ..config import OnLong
from ..types import Length
from .schemas import CallFields

if TYPE_CHECKING:
    from ..recipe import Recipe


def of(body: CallFields, max_len: int, on_long: OnLong | None) -> Length:
    """What `body` says about long inputs, and `on_long` where it says nothing (None: refuse).

    Raises:
        BadInput: More than the `max_len` tokens of the model are asked for, or none.
    """
    return options.length_of(body.truncate_prompt_tokens, body.truncation_side, max_len, Length(on_long or "refuse"))


def of_embedding(body: CallFields, recipe: Recipe, on_long: OnLong | None) -> Length:
    """The same for the routes of vectors, which may have a limit of their own."""
    length = of(body, recipe.max_embed_len or recipe.max_len, on_long)
    return replace(length, limit=recipe.max_embed_len) if length.limit is None else length
