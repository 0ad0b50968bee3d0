"""One value per label and token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ..types import Encoded, Input, Length, ReadKey
from . import classify

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "token_classify"
PER_TOKEN: Final = True

Params = classify.Params
default_params = classify.default_params
shape = classify.shape


def serves(recipe: Recipe) -> bool:
    """A checkpoint with a classifier, of tokens or of whole texts."""
    return recipe.classifier is not None


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """As `classify.encode`; where rows stand for steps, only those of the tokens that end one are given out."""
    encoded = classify.encode(recipe, tokenizer, inputs, params, length)
    tag = recipe.classifier.step_tag_id if recipe.classifier else None
    if tag is None:
        return encoded
    return [replace(item, keep=np.flatnonzero(item.ids == tag).astype(np.int32)) for item in encoded]


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """All requests are read alike."""
    return ReadKey(NAME)


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """Every token has a row."""
    return "all"


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor:
    """Hidden states to logits `[tokens of the spans, L]`, special tokens included."""
    assert heads.classifier is not None
    logits: torch.Tensor = heads.classifier(spans.rows(hidden_QD))
    return logits
