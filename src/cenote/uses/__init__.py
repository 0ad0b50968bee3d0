"""Uses: what is made of tasks. Each turns its arguments into inputs of tasks, and the rows into its own result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from .. import plugins
from ..errors import BadInput, UnsupportedTask
from ..guests import blamed, check
from ..types import Input, Outcome

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

_CONTRACT: Final = ("Options", "serves", "plan", "finish")


@dataclass(frozen=True)
class Group:
    """Inputs that are read alike.

    Args:
        task: Name of the task.
        params: Its options.
        called: What errors call one of them.
    """

    task: str
    inputs: Sequence[Input]
    params: Any
    called: str = "input"


@dataclass(frozen=True)
class Planned:
    """What runs for a use of a plugin.

    Args:
        groups: The outcome has one row for each of their inputs, in this order.
        about: What `finish` wants to know beside the rows.
    """

    groups: Sequence[Group]
    about: Any = None


class Use(Protocol):
    """The contract of a plugin's use, a module or an object; `Options` is a frozen dataclass of optional fields."""

    NAME: str
    Options: Any

    def serves(self, recipe: Recipe) -> bool:
        """Whether this checkpoint can be used so."""

    def plan(self, recipe: Recipe, tokenizer: Tokenizer, given: Any, options: Any) -> Planned:
        """What the model is to read for what was given; raises `BadInput` where that is not allowed."""

    def finish(self, recipe: Recipe, tokenizer: Tokenizer, planned: Planned, outcome: Outcome) -> Any:
        """The result; over HTTP it must be fit for JSON."""


def names() -> tuple[str, ...]:
    """Names of the uses of plugins."""
    return tuple(sorted(name for name, given in plugins.uses().items() if not plugins.is_built_in(given)))


def find(name: str, recipe: Recipe) -> Use:
    """The use of a plugin called `name`.

    Raises:
        BadInput: There is none.
        UnsupportedTask: The checkpoint cannot be used so.
        ConfigError: It cannot be imported, or does not keep the contract.
    """
    if name not in names():
        raise BadInput(
            f"No plugin brings the use {name!r}.",
            allowed=f"There are {', '.join(names()) or 'none'}; Cenote's own have methods and routes by their names.",
            fix="Install it, or register it.",
            param="use",
        )
    use = cast(Use, plugins.use(name))
    check("use", name, use, _CONTRACT)
    with blamed("use", name, "serves"):
        serves = use.serves(recipe)
    if not serves:
        what = f"{recipe.name} cannot be used as {name!r}."
        raise UnsupportedTask(what, allowed=f"Its tasks are {recipe.tasks}.", fix="Name another model.", param="use")
    return use


def plan(use: Use, recipe: Recipe, tokenizer: Tokenizer, given: Any, options: Any) -> Planned:
    """`Use.plan`, whose errors name the use."""
    with blamed("use", use.NAME, "plan"):
        return use.plan(recipe, tokenizer, given, options)


def finish(use: Use, recipe: Recipe, tokenizer: Tokenizer, planned: Planned, outcome: Outcome) -> Any:
    """`Use.finish`, whose errors name the use."""
    with blamed("use", use.NAME, "finish"):
        return use.finish(recipe, tokenizer, planned, outcome)
