"""A task: one forward over a text, and a vector for each passage of it (late chunking)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote.errors import BadInput
from cenote.tasks import embed
from cenote.types import Encoded, FloatArray, Input, Length, ReadKey

if TYPE_CHECKING:
    import torch

    from cenote.layers.heads import Heads
    from cenote.layers.pooling import Ragged, Spans
    from cenote.recipe import Recipe
    from cenote.tokenizer import Tokenizer

NAME = "passage_embed"


@dataclass(frozen=True, slots=True)
class Params(embed.Params):
    """Options of one request: those of `embed`, and how many tokens a passage has; the last one may have fewer."""

    tokens: int = 64

    def check(self, recipe: Recipe) -> None:
        """Refuse what cannot be, before any work."""
        embed.Params.check(self, recipe)
        if self.tokens < 1:
            raise BadInput(f"tokens={self.tokens}.", allowed="At least 1.", param="tokens")
        if self.pooling is not None:
            what = f"pooling={self.pooling!r}, but passages are means."
            raise BadInput(what, fix="Leave it out.", param="pooling")


def serves(recipe: Recipe) -> bool:
    """An embedder that has one row for each token and makes a text's of them."""
    return recipe.pooling is not None and len(recipe.pooling.modes) == 1


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids, as in `embed`."""
    return embed.encode(recipe, tokenizer, inputs, params, length)


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """Requests for passages of another size are read apart."""
    return ReadKey(NAME, pooling=str(params.tokens))


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> Ragged:
    """The mean of each passage's hidden states, and the steps after the pooling: `[n, E]` for each text.

    A prompt that pooling leaves out is in no passage.
    """
    import torch

    from cenote.layers.pooling import Ragged

    assert heads.pooled is not None
    texts = torch.split(spans.rows(hidden_QD).float(), spans.lengths.tolist())
    skips = (spans.starts_S - spans.firsts_S).tolist()
    passages = [torch.split(text[skip:], int(key.pooling)) for text, skip in zip(texts, skips, strict=True)]
    means = torch.stack([passage.mean(dim=0) for some in passages for passage in some])
    return Ragged(heads.pooled.after_pooling(means), spans.lengths.new_tensor([len(some) for some in passages]))


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """Cut, then normalise each passage's row."""
    return embed.shape(recipe, rows, params)
