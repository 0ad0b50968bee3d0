"""One vector per input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ..errors import BadInput
from ..steps import on_tokens
from ..types import Encoded, FloatArray, Input, Length, ReadKey

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "embed"
PER_TOKEN: Final = False
_NORM_EPS: Final = np.float32(1e-12)


@dataclass(frozen=True, slots=True)
class Params:
    """Options of one request.

    Args:
        normalize: Whether vectors have unit length; None as the checkpoint says.
        dimensions: Cut vectors to this size, before normalising; None for the checkpoint's size.
        prompt_name: Name of one of the checkpoint's prompts, put before each text.
        prompt: A text put before each text; wins over `prompt_name`.
        add_special_tokens: Whether the tokenizer adds its special tokens.
    """

    normalize: bool | None = None
    dimensions: int | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True

    def check(self, recipe: Recipe) -> None:
        """Raise `BadInput` where the checkpoint does not allow `dimensions` or has no such prompt."""
        if self.dimensions is not None:
            _check_dimensions(self.dimensions, recipe)
        prompt_text(recipe, self.prompt, self.prompt_name)


def serves(recipe: Recipe) -> bool:
    """Any backbone can be read as one vector per input, but for the one of a classifier."""
    return bool(recipe.steps)


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`; a prompt goes before each text, and before the first of a pair."""
    limit = recipe.max_len if length.limit is None else min(length.limit, recipe.max_len)
    return tokenizer.encode(
        inputs,
        limit=limit,
        on_long=length.on_long,
        side=length.side,
        add_special_tokens=params.add_special_tokens,
        prefix=prompt_text(recipe, params.prompt, params.prompt_name),
        skip_prefix=recipe.pooling is not None and not recipe.pooling.include_prompt,
        model_name=recipe.name,
    )


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """All requests are pooled as the checkpoint says."""
    return ReadKey(NAME)


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """One row is enough where only one is pooled, and no step before it looks at others."""
    if recipe.pooling is None or not recipe.model.nature.prunes or any(on_tokens(step) for step in recipe.steps):
        return "all"
    if recipe.pooling.modes == ("last",):
        return "last"
    if recipe.pooling.modes == ("cls",) and recipe.pooling.include_prompt:
        return "first"
    return "all"


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor:
    """Hidden states to rows `[S, E]`, not yet normalised."""
    assert heads.pooled is not None
    rows_SE: torch.Tensor = heads.pooled(hidden_QD, spans)
    return rows_SE


def shape(recipe: Recipe, rows: FloatArray, params: Params) -> FloatArray:
    """Cut, then normalise: `[N, E]` to `[N, dimensions]`."""
    dimensions = params.dimensions if params.dimensions is not None else recipe.dimensions
    if dimensions is not None:
        rows = rows[:, :dimensions]
    if params.normalize if params.normalize is not None else recipe.normalize:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.maximum(norms, _NORM_EPS)
    return np.ascontiguousarray(rows)


def prompt_text(recipe: Recipe, prompt: str | None, prompt_name: str | None) -> str:
    """What is put before each text: `prompt`, else the prompt of that name, else the checkpoint's default, else "".

    Raises:
        BadInput: The checkpoint has no prompt of that name.
    """
    if prompt is not None:
        return prompt
    name = prompt_name if prompt_name is not None else recipe.default_prompt_name
    if name is None:
        return ""
    if name not in recipe.prompts:
        raise BadInput(
            f"{recipe.name} has no prompt named {name!r}.",
            allowed=f"Its prompts are {', '.join(recipe.prompts) or 'none'}.",
            param="prompt_name",
        )
    return recipe.prompts[name]


def _check_dimensions(dimensions: int, recipe: Recipe) -> None:
    allowed = recipe.matryoshka_dims
    if allowed == ():
        raise BadInput(
            f"Model {recipe.name!r} does not support Matryoshka embeddings; dimensions must be unset "
            f"(received dimensions={dimensions}).",
            param="dimensions",
        )
    if not 1 <= dimensions <= recipe.embedding_size:
        raise BadInput(
            f"Model {recipe.name!r} only supports dimensions in range [1, {recipe.embedding_size}], got {dimensions}.",
            param="dimensions",
        )
    if allowed is not None and dimensions not in allowed:
        raise BadInput(
            f"Model {recipe.name!r} only supports Matryoshka dimensions {list(allowed)}, got {dimensions}.",
            param="dimensions",
        )
