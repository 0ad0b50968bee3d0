"""One sparse row per input: a weight for each word of the vocabulary, most of them zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from .. import prompting
from ..errors import BadInput
from ..steps import SparseCode
from ..types import Encoded, FloatArray, Input, IntArray, Length, ReadKey
from . import embed

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Ragged, Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "sparse"


@dataclass(frozen=True, slots=True)
class Params:
    """Options of one request.

    Args:
        top_k: Keep this many dimensions of each row, those of the largest values by size; None as the checkpoint says.
        threshold: Keep dimensions whose value is, by size, larger than this.
        prompt_name: Name of one of the checkpoint's prompts, put before each text.
        prompt: A text put before each text; wins over `prompt_name`.
        input_type: What the texts are (`query`, `document`, ...), which chooses a prompt where none is named, and how
            they are read where queries and documents have ways of their own.
        add_special_tokens: Whether the tokenizer adds its special tokens.
    """

    top_k: int | None = None
    threshold: float = 0.0
    prompt_name: str | None = None
    prompt: str | None = None
    input_type: str | None = None
    add_special_tokens: bool = True

    def check(self, recipe: Recipe) -> None:
        """Raise `BadInput` where the options say what cannot be, or the checkpoint has no such prompt."""
        top_k: Any = self.top_k
        threshold: Any = self.threshold
        if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
            raise BadInput(f"top_k={top_k!r}.", allowed="It is a whole number of at least 1.", param="top_k")
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not threshold >= 0:
            raise BadInput(f"threshold={threshold!r}.", allowed="It is a number of at least 0.", param="threshold")
        self.text_before(recipe)

    def text_before(self, recipe: Recipe) -> str:
        """What is put before each text."""
        return prompting.text_before(
            recipe, prompt=self.prompt, prompt_name=self.prompt_name, input_type=self.input_type
        )


def serves(recipe: Recipe) -> bool:
    """A checkpoint that makes sparse rows."""
    return recipe.sparse is not None


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`; a prompt goes before each text, and its tokens count like all others."""
    if params.prompt is None and params.prompt_name is None and params.input_type is None:
        prompting.say_unchosen(recipe)
    assert recipe.sparse is not None
    limit = recipe.max_len if length.limit is None else min(length.limit, recipe.max_len)
    words = recipe.sparse.words if prompting.role(params.input_type) in recipe.sparse.by_words else None
    encoded = tokenizer.encode(
        inputs,
        limit=limit,
        on_long=length.on_long,
        side=length.side,
        add_special_tokens=params.add_special_tokens and words is None,
        prefix=params.text_before(recipe),
        skip_prefix=recipe.pooling is not None and not recipe.pooling.include_prompt,
        model_name=recipe.name,
    )
    if words is None:
        return encoded
    weights_V = np.array(words.weights, np.float32)
    return [replace(item, row=_present(item.ids, weights_V)) for item in encoded]


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """All requests of a route are read alike."""
    return ReadKey(NAME, route=prompting.route(recipe, params.input_type))


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """Every token has its say, unless rows are made of a pooled one."""
    assert recipe.sparse is not None
    return embed.rows_needed(recipe, key) if isinstance(recipe.sparse.step, SparseCode) else "all"


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> Ragged:
    """Hidden states to pairs of dimension and value, `[n, 2]` for each span."""
    assert heads.sparse is not None
    pairs: Ragged = heads.sparse(hidden_QD, spans)
    return pairs


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """Drop small values of one row `[n, 2]`; the others stay in the order of their dimensions."""
    assert recipe.sparse is not None
    sizes = np.abs(rows[:, 1])
    if params.threshold:
        rows = rows[sizes > np.float32(params.threshold)]
        sizes = np.abs(rows[:, 1])
    limit = params.top_k or recipe.sparse.max_active
    if limit is not None and limit < len(rows):
        largest = np.argsort(-sizes, kind="stable")[:limit]
        rows = rows[np.sort(largest)]
    return rows


def _present(ids: IntArray, weights_V: FloatArray) -> FloatArray:
    """Pairs of word and weight `[n, 2]`, each word of a text once and none that weighs nothing."""
    present = np.unique(ids)
    pairs_n2 = np.stack([present.astype(np.float32), weights_V[present]], axis=1)
    return np.asarray(pairs_n2[pairs_n2[:, 1] != 0])
