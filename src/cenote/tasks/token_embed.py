"""One vector per token: what `embed` does to a pooled row, done to each.

A late-interaction checkpoint reads queries and documents in ways of their own, and not every token has a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from .. import prompting, token_pooling
from ..errors import BadInput, CheckpointError
from ..modules.late_interaction import LateInteraction, TokenPooling
from ..types import Encoded, FloatArray, Input, IntArray, Length, ReadKey
from . import embed

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Ragged, Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "token_embed"
_RAW: Final = "raw"
_AS_EMBED: Final = "embed"


@dataclass(frozen=True, slots=True)
class Params(embed.Params):
    """Options of one request.

    Args:
        pool_factor: Keep about one of so many rows of what is no query, each the mean of rows that lie close together,
            at unit length; at least 1.
        raw: Give the rows that would be pooled, of all tokens of a plain text: no step after that, no unit length, no
            marks of late interaction.
        as_embed: Whether tokens have vectors as texts have them, even where the checkpoint has a layer for tokens.
    """

    pool_factor: float | None = None
    raw: bool = False
    as_embed: bool = False

    def check(self, recipe: Recipe) -> None:
        """Raise `BadInput` where the checkpoint does not allow an option."""
        embed.Params.check(self, recipe)
        if self.pool_factor is not None:
            if not self.pool_factor >= 1:
                what = f"pool_factor={self.pool_factor!r}."
                raise BadInput(what, allowed="It is a number of at least 1.", param="pool_factor")
            token_pooling.check_installed()


def serves(recipe: Recipe) -> bool:
    """An embedder with rows for tokens that pools in one way, or not at all; several make rows that no token has."""
    return recipe.late_interaction is not None or (recipe.pooling is not None and len(recipe.pooling.modes) == 1)


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def check_tokenizer(late: LateInteraction, tokenizer: Tokenizer) -> None:
    """Raise `CheckpointError` where the tokenizer has no token to expand queries with, or not where we can.

    A query of fixed length is expanded where the tokenizer pads, and what stands before a query and is not attended to
    has no meaning that does not depend on how masked rows are computed.
    """
    if late.expansion is None:
        return
    _expansion_id(late, tokenizer)
    if _expands_left(late, tokenizer) and not late.expansion.attend:
        raise CheckpointError(
            "Queries are expanded to a fixed length by tokens that nobody attends to, and tokenizer_config.json says "
            "padding_side='left', which puts them before the query.",
            allowed="They stand behind it (padding_side='right'), or are attended to.",
            fix="Correct tokenizer_config.json if the model was trained with them behind its queries.",
        )


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`, as in `embed`; queries and documents as the checkpoint has them.

    What is longer than the checkpoint's own width of a query or a document is cut, whatever `length` says.
    """
    late = recipe.late_interaction
    if late is None or params.raw:
        encoded = embed.encode(recipe, tokenizer, inputs, params, length)
        if not _key(recipe, params) and recipe.multi_vector is not None:
            # The layer for tokens was trained without the first one.
            encoded = [replace(item, keep=np.arange(1, len(item.ids), dtype=np.int32)) for item in encoded]
        return encoded
    limit = recipe.max_len if length.limit is None else min(length.limit, recipe.max_len)
    role = prompting.role(params.input_type)
    width = late.width(role)
    narrow = width is not None and width < limit
    encoded = tokenizer.encode(
        inputs,
        limit=width if width is not None and narrow else limit,
        on_long="cut" if narrow else length.on_long,
        side=length.side,
        add_special_tokens=params.add_special_tokens,
        prefix=params.text_before(recipe),
        model_name=recipe.name,
    )
    if narrow:
        encoded = [replace(item, at_width=item.num_cut > 0) for item in encoded]
    if role == "query" and late.expansion is not None:
        expansion_id = _expansion_id(late, tokenizer)
        size = min(late.expansion.length, recipe.max_len)
        left = _expands_left(late, tokenizer)
        encoded = [_expanded(item, expansion_id, size, late.expansion.attend, left) for item in encoded]
    skipped = [tokenizer.id_of(word) for word in late.mask.words] if _means(params, late.mask.input_types) else []
    skipped_ids = np.array([number for number in skipped if number is not None], np.int32)
    only = late.mask.only_ids if role != "query" else None
    encoded = [replace(item, keep=_kept(item.ids, skipped_ids, only)) for item in encoded]
    return embed.adapted(recipe, encoded, params)


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """Raw or not, by the layer for tokens or not; raises `BadInput` where a request names a pooling."""
    if params.pooling is not None:
        raise BadInput(f"pooling={params.pooling!r}, but the task is {NAME}.", fix="Leave it out.", param="pooling")
    return ReadKey(NAME, _key(recipe, params), route=prompting.route(recipe, params.input_type))


def _key(recipe: Recipe, params: Params) -> str:
    return _RAW if params.raw else _AS_EMBED if params.as_embed and recipe.multi_vector is not None else ""


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """Every token has a row."""
    return "all"


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> Ragged:
    """Hidden states to rows, `[n, E]` for each span, not yet normalised; a prompt's tokens have rows too."""
    assert heads.pooled is not None
    rows_QD = spans.rows(hidden_QD)
    if key.pooling == _RAW:
        return spans.ragged(rows_QD.float())
    if heads.multi_vector is not None and not key.pooling:
        return spans.ragged(heads.multi_vector(rows_QD.float()))
    return spans.ragged(heads.pooled.after_pooling(rows_QD))


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """As in `embed`, then pooled: by the checkpoint, and once more where the request asks for it."""
    if params.raw:
        return rows
    rows = embed.shape(recipe, rows, params)
    asked = None if params.pool_factor is None else TokenPooling(params.pool_factor)
    for pooling in (recipe.late_interaction.pooling if recipe.late_interaction else None, asked):
        if pooling is not None and _means(params, pooling.input_types):
            rows = token_pooling.pooled(rows, pooling)
    return rows


def _means(params: Params, input_types: tuple[str, ...]) -> bool:
    return (prompting.role(params.input_type) or "document") in input_types


def _expansion_id(late: LateInteraction, tokenizer: Tokenizer) -> int:
    assert late.expansion is not None
    special = tokenizer.special_tokens
    token = late.expansion.token or special.get("mask_token") or special.get("eos_token")
    number = None if token is None else tokenizer.id_of(token)
    if number is None:
        raise CheckpointError(
            f"Queries are expanded with {token or 'a mask token'!r}, which the tokenizer does not have.",
            allowed="query_expansion names a token of the vocabulary, or the tokenizer has a mask token.",
        )
    return number


def _expands_left(late: LateInteraction, tokenizer: Tokenizer) -> bool:
    return late.expansion is not None and late.expansion.fixed and tokenizer.pads_left


def _expanded(item: Encoded, expansion_id: int, size: int, attend: bool, left: bool) -> Encoded:
    num_more = size - len(item.ids)
    if num_more <= 0:
        return item
    order = slice(None, None, -1 if left else 1)
    ids = np.concatenate([item.ids, np.full(num_more, expansion_id, np.int32)][order])
    zeros = np.zeros(num_more, np.int32)
    segments = None if item.segments is None else np.concatenate([item.segments, zeros][order])
    return replace(item, ids=ids, segments=segments, attended=None if attend else len(item.ids))


def _kept(ids: IntArray, skipped_ids: IntArray, only: tuple[int, ...] | None) -> IntArray | None:
    keep = ~np.isin(ids, skipped_ids)
    if only is not None:
        keep &= np.isin(ids, np.array(only, np.int32))
    return None if keep.all() else np.flatnonzero(keep).astype(np.int32)
