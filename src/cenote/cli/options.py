"""Settings as options: flags, help and choices come from the fields of `config.py`, so new ones need no line here."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar, cast

import click

from .. import config
from ..errors import ConfigError

DEBUG_KEY = "cenote.debug"
"""Where the command's `--debug` is kept for the program around it, in click's `meta`."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """What the user wrote on the command line, by settings class and field; what was not written is left out."""

    by_class: Mapping[type, Mapping[str, Any]]

    def values(self, *classes: type) -> dict[str, Any]:
        """The written values of `classes` by field name, as keywords for whoever resolves them."""
        return {name: value for cls in classes for name, value in self.by_class[cls].items()}

    def settings(self, cls: type[T]) -> T:
        """`cls` filled from what was written, then the environment, then its defaults."""
        return config.resolve(cls, self.by_class[cls]).settings

    def with_model(self, name: str | None) -> Given:
        """The same with the model that a command took as its argument, if it did.

        Raises:
            ConfigError: The model was named a second time, by `--model`.
        """
        if name is None:
            return self
        written = self.by_class[config.ModelSettings]
        if "model" in written:
            raise ConfigError(
                f"The model is named twice: {name} and --model {written['model']}.", fix="Name it once.", param="model"
            )
        return Given({**self.by_class, config.ModelSettings: {**written, "model": name}})


def settings(*classes: type) -> Callable[[F], F]:
    """Give a command the options of these settings classes; the command gets them as one argument, `given`."""
    names = {cls: [f.name for f in fields(cast(Any, cls))] for cls in classes}

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_given(**options: Any) -> Any:
            written = {
                cls: {name: value for name in of_class if (value := options.pop(name)) not in (None, ())}
                for cls, of_class in names.items()
            }
            click.get_current_context().meta[DEBUG_KEY] = written.get(config.ShellSettings, {}).get("debug")
            return command(given=Given(written), **options)

        wrapped: Any = with_given
        for cls in reversed(classes):
            hints = typing.get_type_hints(cls)
            for f in reversed(fields(cast(Any, cls))):
                wrapped = option_of(f, hints[f.name])(wrapped)
        return cast(F, wrapped)

    return decorate


def option_of(f: Field[Any], hint: Any) -> Callable[[F], F]:
    """The option of one setting; not given, it is None (or () where it may be repeated)."""
    flag = "--" + f.name.replace("_", "-")
    kinds = tuple(typing.get_origin(part) or part for part in (typing.get_args(hint) if _is_union(hint) else (hint,)))
    text = f"{config.help_of(f)} [{_default(f)}env: {config.env_name(f.name)}]"
    if bool in kinds:
        return click.option(f"{flag}/--no-{flag[2:]}", f.name, default=None, help=text)
    shared: dict[str, Any] = {"default": None, "help": text}
    metavar = str(f.metadata["metavar"]) or None
    choices = config.choices_of(hint)
    if choices:
        return click.option(flag, f.name, type=click.Choice(choices), **shared)
    if tuple in kinds:
        return click.option(flag, f.name, multiple=True, metavar=metavar or "TEXT", help=text)
    kind = int if int in kinds else float if float in kinds else str
    return click.option(flag, f.name, type=kind, metavar=metavar, **shared)


def _is_union(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _default(f: Field[Any]) -> str:
    if f.default in (None, "", (), MISSING) or isinstance(f.default, bool):
        return ""
    return f"default: {f.default}; "
