"""Settings as options: flags, help and choices come from the fields of `config.py`, so new ones need no line here."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, TypeVar, cast

import click

from .. import config, values
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

    def settings(self, cls: type[T], env: Mapping[str, str] | None = None) -> T:
        """`cls` filled from what was written, then the environment (or `env` in its place), then its defaults."""
        return config.resolve(cls, self.by_class[cls], env).settings

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

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_given(**options: Any) -> Any:
            written = {cls: _taken(cls, options) for cls in classes}
            click.get_current_context().meta[DEBUG_KEY] = written.get(config.ShellSettings, {}).get("debug")
            return command(given=Given(written), **options)

        wrapped: Any = with_given
        for cls in reversed(classes):
            for option in reversed(_options_of(cls)):
                wrapped = option(wrapped)
        return cast(F, wrapped)

    return decorate


def option_of(f: Field[Any], hint: Any) -> Callable[[F], F]:
    """The option of one setting; not given, it is None (or () where it may be repeated)."""
    flag = _flag(f.name)
    kinds = values.kinds_of(hint)
    text = f"{config.help_of(f)} [{_default(f)}env: {config.env_name(f.name)}]"
    if bool in kinds:
        return click.option(f"{flag}/--no-{flag[2:]}", f.name, default=None, help=text)
    if tuple in kinds:
        return click.option(flag, f.name, multiple=True, metavar=str(f.metadata["metavar"]) or "TEXT", help=text)
    return click.option(flag, f.name, default=None, help=text, **_typed(f, hint))


def _options_of(cls: type) -> list[Callable[[Any], Any]]:
    """The options of all settings of a class; one that is a class by itself has a flag for each field too."""
    hints = typing.get_type_hints(cls)
    options: list[Callable[[Any], Any]] = []
    for f in fields(cast(Any, cls)):
        nested = values.nested_of(hints[f.name])
        options.append(option_of(f, hints[f.name]))
        if f.metadata["old"]:
            options.append(click.option(_flag(f.metadata["old"]), f.metadata["old"], default=None, hidden=True))
        if nested is not None:
            inner = typing.get_type_hints(nested)
            options += [_dotted(f.name, part, inner[part.name]) for part in fields(cast(Any, nested))]
    return options


def _dotted(owner: str, f: Field[Any], hint: Any) -> Callable[[F], F]:
    """The flag of one field of a setting; a switch takes a value, or stands alone for yes, as in the reference."""
    flag, name = f"{_flag(owner)}.{f.name.replace('_', '-')}", _inner_name(owner, f.name)
    kinds = values.kinds_of(hint)
    if bool in kinds:
        switch: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": True, "metavar": "[BOOLEAN]"}
        return click.option(flag, name, default=None, help=config.help_of(f), **switch)
    if tuple in kinds:
        return click.option(flag, name, default=None, metavar="N,N", help=config.help_of(f))
    return click.option(flag, name, default=None, help=config.help_of(f), **_typed(f, hint))


def _typed(f: Field[Any], hint: Any) -> dict[str, Any]:
    """Type and metavar of an option with one value."""
    choices = values.choices_of(hint)
    if choices:
        return {"type": click.Choice(choices, case_sensitive=not choices[0].isupper())}
    kinds = values.kinds_of(hint)
    kind = int if int in kinds else float if float in kinds else str
    return {"type": kind, "metavar": str(f.metadata["metavar"]) or None}


def _taken(cls: type, options: dict[str, Any]) -> dict[str, Any]:
    """Take what was written for `cls` out of `options`, by field name."""
    hints = typing.get_type_hints(cls)
    written: dict[str, Any] = {}
    for f in fields(cast(Any, cls)):
        for name in filter(None, (f.name, f.metadata["old"])):
            if (value := options.pop(name)) not in (None, ()):
                written[name] = value
        nested = values.nested_of(hints[f.name])
        if nested is not None:
            inner = _taken_inner(f.name, nested, options)
            # Flags of single fields win over the JSON that holds them all.
            if inner:
                written[f.name] = values.named_values(f.name, written.get(f.name, {})) | inner
    return written


def _taken_inner(owner: str, nested: type, options: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(nested)
    written = {f.name: options.pop(_inner_name(owner, f.name)) for f in fields(cast(Any, nested))}
    return {
        name: values.parsed(f"{owner}.{name}", value, hints[name]) if tuple in values.kinds_of(hints[name]) else value
        for name, value in written.items()
        if value is not None
    }


def _inner_name(owner: str, name: str) -> str:
    return f"{owner}__{name}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _default(f: Field[Any]) -> str:
    if f.default in (None, "", (), MISSING) or isinstance(f.default, bool) or is_dataclass(f.default):
        return ""
    return f"default: {f.default}; "
