"""One vector per token: what `embed` does to a pooled row, done to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ..errors import BadInput
from ..types import ReadKey
from . import embed

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Spans
    from ..recipe import Recipe

NAME: Final = "token_embed"
PER_TOKEN: Final = True

Params = embed.Params
default_params = embed.default_params
encode = embed.encode
shape = embed.shape


def serves(recipe: Recipe) -> bool:
    """An embedder with rows for tokens that pools in one way; several at once make rows that no token has."""
    return recipe.pooling is not None and len(recipe.pooling.modes) == 1


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """All requests are read alike; raises `BadInput` where one names a pooling."""
    if params.pooling is not None:
        raise BadInput(f"pooling={params.pooling!r}, but the task is {NAME}.", fix="Leave it out.", param="pooling")
    return ReadKey(NAME)


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """Every token has a row."""
    return "all"


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor:
    """Hidden states to rows `[tokens of the spans, E]`, not yet normalised; a prompt's tokens have rows too."""
    assert heads.pooled is not None
    return heads.pooled.after_pooling(spans.rows(hidden_QD))
