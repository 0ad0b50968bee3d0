"""Tasks of plugins: what they leave out is filled in, and what they do wrong is told by their name. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import prompting
from .errors import CenoteError, ConfigError
from .types import Encoded, FloatArray, Input, Length, ReadKey

if TYPE_CHECKING:
    import torch

    from .layers.heads import Heads
    from .layers.packed import Wanted
    from .layers.pooling import Ragged, Spans
    from .recipe import Recipe
    from .tokenizer import Tokenizer

_TASK: Final = ("Params", "serves", "encode", "read", "shape")
"""What a task must have; `read_key`, `rows_needed` and `default_params` are filled in."""


def check(kind: str, name: str, given: Any, wanted: Sequence[str]) -> None:
    """Raise `ConfigError` where a guest lacks a part of its contract, or calls itself by another name."""
    missing = [part for part in wanted if not callable(getattr(given, part, None))]
    if missing:
        raise ConfigError(
            f"The {kind} {name!r} of a plugin is {given!r}, which lacks {', '.join(missing)}.",
            allowed=f"It has NAME, {', '.join(wanted)}.",
            fix="Repair or uninstall it.",
            param=kind,
        )
    own = getattr(given, "NAME", None)
    if own != name:
        what = f"The {kind} {name!r} of a plugin calls itself NAME={own!r}."
        raise ConfigError(what, allowed="Both are the same.", fix="Repair or uninstall it.", param=kind)


@contextmanager
def blamed(kind: str, name: str, part: str) -> Iterator[None]:
    """Let an error of a guest say whose it is; what it raises as one of ours stays."""
    try:
        yield
    except CenoteError:
        raise
    except Exception as error:
        # A guest can fail in any way.
        raise CenoteError(
            f"`{part}` of the {kind} {name!r}, which a plugin brings, failed: {type(error).__name__}: {error}.",
            fix="Repair or uninstall the plugin.",
        ) from error


def check_shaped(task: str, rows: FloatArray, num_inputs: int) -> None:
    """Raise `CenoteError` where `shape` lost a row or made one up; a guest can."""
    if rows.shape[:1] != (num_inputs,):
        raise CenoteError(
            f"`shape` of the task {task!r} made an array {list(rows.shape)} of {num_inputs} inputs.",
            allowed="One row for each.",
            fix="Repair or uninstall the plugin that brings the task.",
        )


class GuestTask:
    """A plugin's task with the contract of `tasks.Task`.

    Args:
        given: A module or an object with `NAME`, `Params` (a frozen dataclass that can be made without arguments, with
            `check(recipe)`), `serves(recipe)`, `encode(recipe, tokenizer, inputs, params, length)`, `read(heads,
            hidden_QD, spans, key)` and `shape(recipe, rows, params)`. `read_key(recipe, params)` says what `read` must
            know of the options, as strings in a `ReadKey`; without one all requests are read alike. Without
            `rows_needed(recipe, key)` all rows of the last layer are computed.

    Raises:
        ConfigError: Something is missing.
    """

    def __init__(self, name: str, given: Any) -> None:
        check("task", name, given, _TASK)
        self.NAME, self._given = name, given

    def serves(self, recipe: Recipe) -> bool:
        """Whether this checkpoint can be read as this task."""
        with blamed("task", self.NAME, "serves"):
            return bool(self._given.serves(recipe))

    def default_params(self) -> Any:
        """Options that change nothing."""
        with blamed("task", self.NAME, "Params"):
            return self._given.Params()

    def encode(
        self, recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Any, length: Length
    ) -> list[Encoded]:
        """Token ids of `inputs`, one record for each."""
        with blamed("task", self.NAME, "encode"):
            encoded = list(self._given.encode(recipe, tokenizer, inputs, params, length))
            if len(encoded) != len(inputs):
                raise ValueError(f"it gives {len(encoded)} records for {len(inputs)} inputs")
            return [_checked(item, recipe, index) for index, item in enumerate(encoded)]

    def read_key(self, recipe: Recipe, params: Any) -> ReadKey:
        """How the hidden states of a request with these options are read."""
        route = prompting.route(recipe, getattr(params, "input_type", None))
        if not hasattr(self._given, "read_key"):
            return ReadKey(self.NAME, route=route)
        with blamed("task", self.NAME, "read_key"):
            key: ReadKey = self._given.read_key(recipe, params)
            if key.route and key.route not in recipe.by_route:
                raise ValueError(f"there is no route {key.route!r}")
            return key._replace(task=self.NAME, route=key.route or route)

    def rows_needed(self, recipe: Recipe, key: ReadKey) -> Wanted:
        """Which rows of the last layer `read` looks at."""
        if not hasattr(self._given, "rows_needed"):
            return "all"
        with blamed("task", self.NAME, "rows_needed"):
            wanted: Wanted = self._given.rows_needed(recipe, key)
            if wanted not in ("first", "last", "all"):
                raise ValueError(f"it gives {wanted!r}, not first, last or all")
            return wanted

    def read(self, heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor | Ragged:
        """Hidden states to float32 rows, on the device: one per span, or as many as each span has."""
        found: torch.Tensor | Ragged = self._given.read(heads, hidden_QD, spans, key)
        num = len(spans.firsts_S)
        num_found = len(found.lengths_S) if isinstance(found, tuple) else len(found)
        if num_found != num:
            what = f"The task {self.NAME!r} of a plugin gives rows of {num_found} texts, and there are {num}."
            raise ConfigError(what, fix="Repair or uninstall it.", param="task")
        return found

    def shape(self, recipe: Recipe, rows: FloatArray, params: Any) -> FloatArray:
        """Apply this request's options to finished rows, on the CPU."""
        with blamed("task", self.NAME, "shape"):
            return np.asarray(self._given.shape(recipe, rows, params), np.float32)


def _checked(item: Encoded, recipe: Recipe, index: int) -> Encoded:
    """A guest's record, its ids as int32; raises `ValueError` where the model cannot read them."""
    which = f"record {index}"
    if not isinstance(item, Encoded):
        raise ValueError(f"{which} is {item!r}, and no `Encoded`")
    ids: Any = item.ids
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
        raise ValueError(f"{which} has ids={ids!r}, which is no array of one or more integers")
    if len(ids) > recipe.max_len and not item.chunks:
        raise ValueError(f"{which} has {len(ids)} tokens, and the model reads {recipe.max_len}")
    if ids.min() < 0 or ids.max() >= recipe.num_words:
        raise ValueError(
            f"{which} has ids from {ids.min()} to {ids.max()}; the model's go from 0 to {recipe.num_words - 1}"
        )
    return item if ids.dtype == np.int32 else replace(item, ids=ids.astype(np.int32))
