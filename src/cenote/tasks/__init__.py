"""Tasks: what one forward can be read as. One module each, found by its name.

`encode` and `shape` run on the CPU and import no torch; `read` runs on the device and is handed its tensors.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from .. import plugins
from ..errors import UnsupportedTask
from ..guests import GuestTask
from ..types import Encoded, FloatArray, Input, Length, ReadKey

if TYPE_CHECKING:
    import torch

    from ..layers.heads import Heads
    from ..layers.packed import Wanted
    from ..layers.pooling import Ragged, Spans
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

TASKS = ("embed", "classify", "token_embed", "token_classify", "sparse")
"""Names of the tasks, in the order in which a checkpoint's default is looked for."""


COMPOSITE = ("hybrid",)
"""Several tasks read off one forward, for methods of their own; no request names them."""


class Params(Protocol):
    """Per-request options of a task; frozen."""

    def check(self, recipe: Recipe) -> None:
        """Raise `BadInput` where this model cannot do what is asked, before any work."""


class Task(Protocol):
    """The contract of a task module."""

    NAME: str

    def serves(self, recipe: Recipe) -> bool:
        """Whether this checkpoint can be read as this task."""

    def default_params(self) -> Params:
        """Options that change nothing."""

    def encode(
        self, recipe: Recipe, tokenizer: Tokenizer, inputs: Sequence[Input], params: Any, length: Length
    ) -> list[Encoded]:
        """Token ids of `inputs`, prompts applied, cut or refused by `length`."""

    def read_key(self, recipe: Recipe, params: Any) -> ReadKey:
        """How the hidden states of a request with these options are read."""

    def rows_needed(self, recipe: Recipe, key: ReadKey) -> Wanted:
        """Which rows of the last layer `read` looks at; the model computes no others."""

    def read(self, heads: Heads, hidden_QD: torch.Tensor, spans: Spans, key: ReadKey) -> torch.Tensor | Ragged:
        """Hidden states to float32 rows, on the device: one per span, or as many as each span has."""

    def shape(self, recipe: Recipe, rows: FloatArray, params: Any) -> FloatArray:
        """Apply this request's options to finished rows `[n, ...]`, on the CPU."""


def names() -> tuple[str, ...]:
    """Names of all tasks that requests may name: ours as `TASKS` has them, then those of plugins by their names."""
    return (*TASKS, *sorted(name for name, given in plugins.tasks().items() if not plugins.is_built_in(given)))


def find(name: str) -> Task:
    """The task called `name`.

    Raises:
        UnsupportedTask: There is no such task.
        ConfigError: A plugin brings it, and it cannot be imported or does not keep the contract.
    """
    given = plugins.tasks().get(name)
    if given is None:
        raise UnsupportedTask(f"Unsupported task: {name!r}", allowed=f"Supported tasks: {names()}", param="task")
    if plugins.is_built_in(given):
        return _built_in(given)
    return GuestTask(name, plugins.task(name))


@functools.cache
def _built_in(module: str) -> Task:
    return cast(Task, importlib.import_module(module))


def find_served(name: str, recipe: Recipe) -> Task:
    """The task called `name`, which the model must serve.

    Raises:
        UnsupportedTask: There is no such task, or the model cannot be read as it.
    """
    module = find(name)
    if not module.serves(recipe):
        raise UnsupportedTask(
            f"Unsupported task: {name!r} with {recipe.name}.",
            allowed=f"Supported tasks: {tuple(recipe.tasks)}",
            param="task",
        )
    return module
