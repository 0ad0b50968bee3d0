"""The likeliest words in the place of a mask, as transformers' fill-mask pipeline gives them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import BadInput, UnsupportedTask
from ..types import Encoded, FloatArray, Outcome

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

log = logging.getLogger(__name__)

Fills: TypeAlias = "list[Fill]"
Filled: TypeAlias = "Fills | list[Fills] | list[Fills | list[Fills]]"
"""Words of one text, or of several; of each mask where a text has several."""
Targets: TypeAlias = "str | Sequence[str] | None"
"""The only words that are looked at; None for all."""


@dataclass(frozen=True, slots=True)
class Fill:
    """One word in the place of a mask.

    Args:
        score: Its probability among all words.
        token: Its id.
        token_str: It, as text.
        sequence: The whole text with it.
    """

    score: float
    token: int
    token_str: str
    sequence: str


@dataclass(frozen=True)
class Plan:
    """What runs for some texts.

    Args:
        texts: One, or several.
        mask_id: Id of the mask.
        top_k: How many words each mask gets.
        targets: Ids of the words that are looked at; None for all.
    """

    texts: str | Sequence[str]
    mask_id: int
    top_k: int
    targets: list[int] | None

    @property
    def options(self) -> dict[str, Any]:
        """Options of the task `token_classify`, by our names: only masks have rows."""
        return {"token_id": self.mask_id}


def plan(
    recipe: Recipe,
    tokenizer: Tokenizer,
    texts: Any,
    top_k: Any,
    targets: str | Sequence[str] | None,
) -> Plan:
    """Check what is asked for.

    Raises:
        UnsupportedTask: The model has no masked-language-model head.
        BadInput: `top_k` is no number of words, there are no targets, or a text has no mask.
    """
    if recipe.masked_lm is None:
        raise UnsupportedTask(
            f"{recipe.name} fills no masks.",
            allowed="A *ForMaskedLM with its head does.",
            fix="Name such a checkpoint.",
            param="model",
        )
    mask = tokenizer.special_tokens.get("mask_token")
    mask_id = None if mask is None else tokenizer.id_of(mask)
    if mask is None or mask_id is None:
        raise UnsupportedTask(f"The tokenizer of {recipe.name} does not define a `mask_token`.", param="model")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise BadInput(f"top_k={top_k!r}.", allowed="It is a whole number of at least 1.", param="top_k")
    for index, text in enumerate([texts] if isinstance(texts, str) else texts):
        if not isinstance(text, str) or mask not in text:
            what = f"No mask_token ({mask}) found on the input: input {index}."
            raise BadInput(what, allowed="Texts with at least one mask.", param="inputs", index=index)
    ids = None if targets is None else _target_ids(tokenizer, [targets] if isinstance(targets, str) else targets)
    return Plan(texts, mask_id, top_k, ids)


def finish(planned: Plan, tokenizer: Tokenizer, outcome: Outcome) -> Filled:
    """For each text the words of its mask, from likely to unlikely; of each of its masks where there are several.

    Several masks are looked at one by one, so that their probabilities are not joint ones.
    """
    found = [
        _of_text(planned, tokenizer, item, rows_MV) for item, rows_MV in zip(outcome.encoded, outcome.rows, strict=True)
    ]
    return found[0] if isinstance(planned.texts, str) else found


def _of_text(planned: Plan, tokenizer: Tokenizer, item: Encoded, rows_MV: FloatArray) -> Fills | list[Fills]:
    places = np.flatnonzero(item.ids == planned.mask_id)
    filled = []
    for place, row_V in zip(places.tolist(), rows_MV, strict=True):
        among = np.arange(len(row_V)) if planned.targets is None else np.array(planned.targets)
        best = among[np.argsort(-row_V[among], kind="stable")[: planned.top_k]]
        filled.append([_fill(tokenizer, item, place, int(word), row_V, alone=len(places) == 1) for word in best])
    return filled[0] if len(filled) == 1 else filled


def _fill(tokenizer: Tokenizer, item: Encoded, place: int, word: int, row_V: FloatArray, *, alone: bool) -> Fill:
    ids = item.ids.copy()
    ids[place] = word
    # Other masks stay to be seen.
    # A model may have rows for words that its tokenizer does not know.
    shown = ids[(ids != tokenizer.pad_id) & (ids < tokenizer.vocab_size)].tolist()
    sequence = tokenizer.decode(shown, skip_special_tokens=alone)
    token_str = tokenizer.decode([word]) if word < tokenizer.vocab_size else ""
    return Fill(float(row_V[word]), word, token_str, sequence)


def _target_ids(tokenizer: Tokenizer, targets: Sequence[Any]) -> list[int]:
    found: dict[int, Any] = {}
    for target in targets:
        if not isinstance(target, str):
            what = f"A target is of type {type(target).__name__}."
            raise BadInput(what, allowed="Targets are texts.", param="targets")
        known = tokenizer.id_of(target)
        if known is None:
            ids = tokenizer.ids_of(target, add_special_tokens=False)
            if not ids:
                log.warning("%r has no tokens and is passed over.", target)
                continue
            known = ids[0]
            log.warning(
                "%r is no token of the model; its first one, %r, is taken.", target, tokenizer.words([known])[0]
            )
        found[known] = None
    if not found:
        raise BadInput("There are no targets.", allowed="At least one target must be provided.", param="targets")
    return sorted(found)
