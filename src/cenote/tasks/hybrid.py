"""All three readings of a text by one forward: its vector, its sparse row and the vectors of its tokens.

It is no task that a request names: `LLM.embed_all` and hybrid scores are made of it. The row of a text is flat, so that
it travels like any other; `parts` takes it apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from ..types import Encoded, FloatArray, Input, Length, ReadKey
from . import embed

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Ragged, Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "hybrid"

Params = embed.Params
"""Options count for the vectors of the text and of its tokens alike; the sparse row has none."""

_HEAD: Final = 3


class Parts(NamedTuple):
    """The three readings of one text.

    Args:
        vector_E: Its vector.
        tokens_ND: Vectors of its tokens, all but the first.
        pairs_n2: Its sparse row, as dimension and value.
    """

    vector_E: FloatArray
    tokens_ND: FloatArray
    pairs_n2: FloatArray


def parts(row: FloatArray) -> Parts:
    """Take a row apart: the sizes of the first two parts, then the parts one after the other."""
    size, count, width = (int(number) for number in row[:_HEAD])
    ends = np.cumsum([_HEAD, size, count * width]).tolist()
    vector_E, tokens = row[ends[0] : ends[1]], row[ends[1] : ends[2]]
    return Parts(vector_E, tokens.reshape(count, width), row[ends[2] :].reshape(-1, 2))


def serves(recipe: Recipe) -> bool:
    """A checkpoint that has all three."""
    return recipe.multi_vector is not None


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`, as in `embed`."""
    return embed.encode(recipe, tokenizer, inputs, params, length)


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """As in `embed`."""
    return embed.read_key(recipe, params)._replace(task=NAME)


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """Every token has a row."""
    return "all"


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> Ragged:
    """Hidden states to one flat row for each span."""
    import torch

    from ..layers.pooling import Ragged

    assert heads.pooled is not None
    assert heads.sparse is not None
    assert heads.multi_vector is not None
    rows_SE = heads.pooled(hidden_QD, spans, key.pooling)
    tokens_ND, pairs = heads.multi_vector(spans.rows(hidden_QD).float()), heads.sparse(hidden_QD, spans)
    lengths, sizes = spans.lengths.tolist(), pairs.lengths_S.tolist()
    wholes = []
    bounds = zip(pairwise(accumulate(lengths, initial=0)), pairwise(accumulate(sizes, initial=0)), strict=True)
    for row_E, ((start, end), (first, last)) in zip(rows_SE, bounds, strict=True):
        head = rows_SE.new_tensor([len(row_E), max(end - start - 1, 0), tokens_ND.shape[1]])
        own = (head, row_E, tokens_ND[start + 1 : end].flatten(), pairs.rows_nE[first:last].flatten())
        wholes.append(torch.cat(own))
    return Ragged(torch.cat(wholes), spans.lengths.new_tensor([len(whole) for whole in wholes]))


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """Cut and normalise the vectors of one row, as in `embed`."""
    vector_E, tokens_ND, pairs_n2 = parts(rows)
    vector_E, tokens_ND = embed.shape(recipe, vector_E[None], params)[0], embed.shape(recipe, tokens_ND, params)
    head = np.array([len(vector_E), *tokens_ND.shape], np.float32)
    return np.concatenate([head, vector_E, tokens_ND.ravel(), pairs_n2.ravel()])
