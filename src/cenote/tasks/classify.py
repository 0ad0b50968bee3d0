"""One value per label and input."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from .. import pairing, prompting
from ..activations import activate
from ..steps import rows_read
from ..types import Encoded, FloatArray, Input, Length, Pair, ReadKey

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

log = logging.getLogger(__name__)

NAME: Final = "classify"


@dataclass(frozen=True, slots=True)
class Params:
    """Options of one request.

    Args:
        use_activation: Whether the checkpoint's activation is applied to the logits; None as the settings say.
        prompt_name: Name of one of the checkpoint's prompts, put before each text.
        prompt: A text put before each text; wins over `prompt_name`.
        add_special_tokens: Whether the tokenizer adds its special tokens.
        only_first: Where a pair is too long and is cut, only its first text gives; else the longer one gives first.
        raw_logits: Give the logits as the model made them, without calibration; what uses are made of.
    """

    use_activation: bool | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    only_first: bool = False
    raw_logits: bool = False

    def check(self, recipe: Recipe) -> None:
        """Raise `BadInput` where the checkpoint has no such prompt."""
        prompting.text_before(recipe, prompt=self.prompt, prompt_name=self.prompt_name)


def serves(recipe: Recipe) -> bool:
    """A checkpoint with a classifier of whole texts."""
    return recipe.classifier is not None and recipe.classifier.head == "sequence"


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`, single texts or pairs; a prompt goes before each text, and before the first of a pair.

    Where the checkpoint has a template for pairs, that makes one text of each, and no prompt goes before it.
    """
    if not params.raw_logits and reads_pairs(recipe, tokenizer) and any(isinstance(item, str) for item in inputs):
        _say_alone(recipe.name)
    joiner = pairing.joiner(recipe, tokenizer) if any(isinstance(item, Pair) for item in inputs) else None
    if joiner is not None:
        inputs = [joiner.join(item) if isinstance(item, Pair) else item for item in inputs]
    limit = recipe.max_len if length.limit is None else min(length.limit, recipe.max_len)
    return tokenizer.encode(
        inputs,
        limit=limit,
        on_long=length.on_long,
        side=length.side,
        add_special_tokens=params.add_special_tokens,
        only_first=params.only_first,
        prefix=prompting.text_before(recipe, prompt=params.prompt, prompt_name=params.prompt_name),
        model_name=recipe.name,
    )


def reads_pairs(recipe: Recipe, tokenizer: Tokenizer) -> bool:
    """Whether a checkpoint looks like a cross-encoder that tells the texts of a pair apart by segment ids."""
    classifier = recipe.classifier
    one_label = classifier is not None and classifier.head == "sequence" and len(classifier.labels) == 1
    return one_label and tokenizer.has_segments


@functools.cache
def _say_alone(name: str) -> None:
    """Once for each model: a text alone is allowed, but most cross-encoders never saw one."""
    log.warning(
        "%s has one label and segment ids, so it most likely scores pairs; a text was given alone. "
        "It is read as it is. Give a Pair, or call LLM.score.",
        name,
    )


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """All requests are read alike."""
    return ReadKey(NAME)


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """Those that make the row which is classified; one for most families."""
    assert recipe.classifier is not None
    assert recipe.classifier.pooling is not None
    return rows_read((recipe.classifier.pooling,))


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor:
    """Hidden states to logits `[S, L]`."""
    assert heads.classifier is not None
    return heads.classifier.of_texts(hidden_QD, spans)


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """Calibrate, then apply the activation: logits `[n, L]` to probabilities or raw values."""
    assert recipe.classifier is not None
    if params.raw_logits:
        return rows
    return activate(rows, recipe.classifier, params.use_activation)
