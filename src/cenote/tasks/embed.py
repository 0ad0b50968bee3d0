"""One vector per input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from .. import plugins, prompting
from ..errors import BadInput
from ..steps import POOLINGS, on_tokens, rows_read
from ..types import Encoded, FloatArray, Input, Length, ReadKey

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.pooling import Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

NAME: Final = "embed"
_NORM_EPS: Final = np.float32(1e-12)


@dataclass(frozen=True, slots=True)
class Params:
    """Options of one request.

    Args:
        normalize: Whether vectors have unit length; None as the checkpoint says.
        dimensions: Cut vectors to this size, before normalising; None for the checkpoint's size.
        prompt_name: Name of one of the checkpoint's prompts, put before each text.
        prompt: A text put before each text; wins over `prompt_name`.
        input_type: What the texts are (`query`, `document`, ...), which chooses a prompt and an adapter where none is
            named.
        pooling: Mode of `steps.POOLINGS`, or of a plugin, in place of the checkpoint's, in any case of letters.
        adapter: Name of the checkpoint's adapter that the texts are read with; its instruction goes before each, unless
            `prompt`, `prompt_name` or `input_type` says otherwise.
        add_special_tokens: Whether the tokenizer adds its special tokens.
    """

    normalize: bool | None = None
    dimensions: int | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    input_type: str | None = None
    pooling: str | None = None
    adapter: str | None = None
    add_special_tokens: bool = True

    def check(self, recipe: Recipe) -> None:
        """Raise `BadInput` where the checkpoint does not allow what is asked, or has no such prompt or adapter."""
        if self.dimensions is not None:
            _check_dimensions(self.dimensions, recipe)
        if self.pooling is not None:
            _check_pooling(self.pooling, recipe.by_route[prompting.route(recipe, self.input_type)])
        self.text_before(recipe)

    def text_before(self, recipe: Recipe) -> str:
        """What is put before each text: what the request says, else the adapter's instruction, else the default.

        Raises:
            BadInput: The checkpoint has no such adapter or no such prompt.
        """
        instruction = None if self.adapter is None else _instruction(recipe, self.adapter)
        if instruction is not None and (self.prompt, self.prompt_name, self.input_type) == (None, None, None):
            return instruction
        return prompting.text_before(
            recipe, prompt=self.prompt, prompt_name=self.prompt_name, input_type=self.input_type
        )


def serves(recipe: Recipe) -> bool:
    """Any backbone can be read as one vector per input, but for the one of a classifier."""
    return bool(recipe.steps) and recipe.late_interaction is None


def default_params() -> Params:
    """As the checkpoint says."""
    return Params()


def encode(
    recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Params, length: Length
) -> list[Encoded]:
    """Token ids of `inputs`; a prompt goes before each text, and before the first of a pair."""
    if (params.prompt, params.prompt_name, params.input_type, params.adapter) == (None, None, None, None):
        prompting.say_unchosen(recipe)
    limit = recipe.max_len if length.limit is None else min(length.limit, recipe.max_len)
    encoded = tokenizer.encode(
        inputs,
        limit=limit,
        on_long=length.on_long,
        side=length.side,
        add_special_tokens=params.add_special_tokens,
        prefix=params.text_before(recipe),
        skip_prefix=recipe.pooling is not None and not recipe.pooling.include_prompt,
        model_name=recipe.name,
        overlap=recipe.chunk_overlap if length.overlap is None else length.overlap,
    )
    return adapted(recipe, encoded, params)


def adapted(recipe: Recipe, encoded: list[Encoded], params: Params) -> list[Encoded]:
    """`encoded`, to be read with the adapter that the request names, else with that for its type of input."""
    name = params.adapter if params.adapter is not None else prompting.adapter(recipe, params.input_type)
    if name is None:
        return encoded
    number = list(recipe.adapters).index(name)
    return [_adapted(one, number) for one in encoded]


def _adapted(one: Encoded, number: int) -> Encoded:
    pieces = tuple(replace(piece, encoded=_adapted(piece.encoded, number)) for piece in one.chunks)
    return replace(one, adapter=number, chunks=pieces)


def read_key(recipe: Recipe, params: Params) -> ReadKey:
    """Pooled as the checkpoint says, or in another way."""
    asked, route = (params.pooling or "").lower(), prompting.route(recipe, params.input_type)
    pooling = recipe.by_route[route].pooling
    own = pooling.modes if pooling else ()
    return ReadKey(NAME, "" if (asked,) == own else asked, route=route)


def rows_needed(recipe: Recipe, key: ReadKey) -> Literal["first", "last", "all"]:
    """One row is enough where only one is pooled, and no step before it looks at others."""
    if recipe.pooling is None or not recipe.model.nature.prunes or any(on_tokens(step) for step in recipe.steps):
        return "all"
    modes = (key.pooling,) if key.pooling else recipe.pooling.modes
    return rows_read(modes, skips=not recipe.pooling.include_prompt)


def read(heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor:
    """Hidden states to rows `[S, E]`, not yet normalised."""
    assert heads.pooled is not None
    rows_SE: torch.Tensor = heads.pooled(hidden_QD, spans, key.pooling)
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


def _check_pooling(pooling: str, recipe: Recipe) -> None:
    if pooling.lower() not in POOLINGS:
        guests = plugins.poolings()
        if pooling.lower() not in guests:
            allowed = f"Allowed are {', '.join((*POOLINGS, *guests))}."
            raise BadInput(f"pooling={pooling!r}.", allowed=allowed, param="pooling")
        plugins.pooling(pooling.lower())
    modes = recipe.pooling.modes if recipe.pooling else ()
    if len(modes) != 1:
        why = f"puts {' and '.join(modes)} side by side" if modes else "has one row for each text and pools none"
        raise BadInput(
            f"pooling={pooling!r}, but {recipe.name} {why}.",
            allowed="Vectors of another pooling would have another size.",
            fix="Leave it out.",
            param="pooling",
        )


def _instruction(recipe: Recipe, adapter: str) -> str:
    if adapter not in recipe.adapters:
        raise BadInput(
            f"{recipe.name} has no adapter named {adapter!r}.",
            allowed=f"Its adapters are {', '.join(recipe.adapters) or 'none'}.",
            param="adapter",
        )
    return recipe.adapters[adapter]


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
