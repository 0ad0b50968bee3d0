"""One value per label and token; the labels of a masked language model are the words of its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ..activations import apply
from ..errors import BadInput
from ..types import Encoded, FloatArray, Input, Length, ReadKey
from . import classify

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.packed import Wanted
    from ..layers.pooling import Ragged, Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "token_classify"
MOST_VALUES: Final = 2**26
"""Most logits of words for one input; 256 MiB."""


@dataclass(frozen=True, slots=True)
class Params(classify.Params):
    """Options of one request.

    Args:
        token_id: Only tokens with this id have rows, for example those of masks; None for all tokens. Each input must
            have one.
    """

    token_id: int | None = None

    def check(self, recipe: Recipe) -> None:
        """As `classify`'s; raises `BadInput` too where the rows of one token cannot be computed alone."""
        classify.Params.check(self, recipe)
        if self.token_id is not None and not recipe.model.nature.prunes:
            what = f"{recipe.name} computes the rows of all tokens at once, and token_id={self.token_id} was given."
            raise BadInput(what, fix="Leave token_id out.", param="token_id")


def serves(recipe: Recipe) -> bool:
    """A checkpoint with a classifier, of tokens or of whole texts, or with a masked-language-model head.

    One of whole texts that gives its logits itself has none for tokens.
    """
    classifier = recipe.classifier
    if classifier is None:
        return recipe.masked_lm is not None
    return classifier.head == "token" or not classifier.own_logits


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`, as in `classify`; where rows stand for steps, only tokens that end one have rows.

    Raises:
        BadInput: An input has no token `token_id`, or a value per word of each of its tokens would be too much.
    """
    encoded = classify.encode(recipe, tokenizer, inputs, params, length)
    for index, item in enumerate(encoded):
        if params.token_id is not None:
            if not (item.ids == params.token_id).any():
                raise BadInput(f"Input {index} has no token {params.token_id}.", param="token_id", index=index)
        elif recipe.classifier is None and len(item.ids) * recipe.model.vocab_size > MOST_VALUES:
            raise BadInput(
                f"Input {index} has {len(item.ids)} tokens, with a value for each of {recipe.model.vocab_size} words.",
                allowed=f"At most {MOST_VALUES} values of one input are given out.",
                fix="Shorten it, read it as sparse, or ask for the rows of one token_id.",
                index=index,
            )
    tag = recipe.classifier.step_tag_id if recipe.classifier else None
    if tag is None or params.token_id is not None:
        return encoded
    return [replace(item, keep=np.flatnonzero(item.ids == tag).astype(np.int32)) for item in encoded]


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """Requests for the rows of one token are read apart."""
    return ReadKey(NAME, token_id=params.token_id)


def rows_needed(recipe: Recipe, key: ReadKey) -> Wanted:
    """Every token has a row, or every token with the id that was asked for."""
    return "all" if key.token_id is None else key.token_id


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> Ragged:
    """Hidden states to logits, `[n, L]` for each span, special tokens included."""
    classifier = heads.classifier or heads.masked_lm
    assert classifier is not None
    return spans.ragged(classifier(spans.rows(hidden_QD)))


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """As in `classify`; logits of words become probabilities."""
    if recipe.classifier is not None:
        return classify.shape(recipe, rows, params)
    raw = params.raw_logits or params.use_activation is False
    return rows if raw else np.asarray(apply(rows, "softmax"), np.float32)
