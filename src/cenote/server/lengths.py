"""Fields of a request that say what to do with long inputs, turned into the one inner record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..config import OnLong
from ..errors import BadInput
from ..types import Length
from .schemas import CallFields

if TYPE_CHECKING:
    from ..recipe import Recipe

Side = Literal["left", "right"]


def of(body: CallFields, max_len: int, on_long: OnLong | None) -> Length:
    """What `body` says about long inputs; arguments and errors as of `from_reference`."""
    return from_reference(body.truncate_prompt_tokens, body.truncation_side, max_len, on_long)


def of_embedding(body: CallFields, recipe: Recipe, on_long: OnLong | None) -> Length:
    """The same for the routes of vectors, which may have a limit of their own."""
    length = of(body, recipe.max_embed_len or recipe.max_len, on_long)
    return replace(length, limit=recipe.max_embed_len) if length.limit is None else length


def from_reference(
    truncate_prompt_tokens: int | None, truncation_side: Side | None, max_len: int, on_long: OnLong | None
) -> Length:
    """`truncate_prompt_tokens` and `truncation_side` as the reference reads them.

    Args:
        truncate_prompt_tokens: Cut to this many tokens, -1 to the model's limit, None to not cut.
        truncation_side: The end that loses tokens; None is the right one.
        max_len: The model's limit in tokens.
        on_long: What the server does where the request does not say; None is to refuse.

    Raises:
        BadInput: More tokens are asked for than the model takes, or none.
    """
    side = truncation_side or "right"
    if truncate_prompt_tokens is None:
        return Length(on_long=on_long or "refuse", side=side)
    if truncate_prompt_tokens > max_len:
        raise BadInput(
            "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size.",
            allowed=f"Got {truncate_prompt_tokens}, the limit is {max_len}.",
            param="truncate_prompt_tokens",
        )
    if truncate_prompt_tokens == 0:
        raise BadInput(
            "truncate_prompt_tokens=0 leaves nothing of an input.",
            allowed=f"It takes 1 to {max_len}, or -1 for the model's limit.",
            param="truncate_prompt_tokens",
        )
    return Length(on_long="cut", side=side, limit=None if truncate_prompt_tokens == -1 else truncate_prompt_tokens)
