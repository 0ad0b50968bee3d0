"""Values of settings: checked against the type of their field, or read from text."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, cast

from .errors import ConfigError

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def choices_of(hint: Any) -> tuple[str, ...]:
    """The literal values that a type hint allows, or () if it allows any."""
    literals = [part for part in _members(hint) if typing.get_origin(part) is Literal]
    return tuple(str(choice) for part in literals for choice in typing.get_args(part))


def nested_of(hint: Any) -> type | None:
    """The settings class that is the type of a field, or None."""
    return hint if isinstance(hint, type) and is_dataclass(hint) else None


def checked(name: str, value: Any, hint: Any) -> Any:
    """`value`, if it has the type of the setting `name`; a list becomes a tuple, a mapping its settings class.

    Raises:
        ConfigError: It has another type, or is none of the choices.
    """
    choices = choices_of(hint)
    if choices:
        if value not in choices:
            raise ConfigError(f"{name}={value!r}.", allowed=f"Allowed are {', '.join(choices)}.", param=name)
        return value
    nested = nested_of(hint)
    if nested is not None:
        return value if isinstance(value, nested) else _made(nested, name, named_values(name, value))
    kinds = kinds_of(hint)
    if dict in kinds and isinstance(value, str):
        return named_values(name, value)
    if tuple in kinds and isinstance(value, (str, list, tuple)):
        return _members_checked(name, (value,) if isinstance(value, str) else tuple(value), hint)
    if float in kinds and type(value) is int:
        return float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise ConfigError(
            f"{name}={value!r} is of type {type(value).__name__}.", allowed=f"It takes {wanted}.", param=name
        )
    return value


def parsed(variable: str, text: str, hint: Any) -> Any:
    """`text` as the type of a setting; errors name `variable`, where it stood.

    Raises:
        ConfigError: It cannot be read as that type.
    """
    kinds = kinds_of(hint)
    try:
        if tuple in kinds:
            parts = tuple(part.strip() for part in text.strip("[]").split(",") if part.strip())
            return tuple(int(part) for part in parts) if _member_kind(hint) is int else parts
        if bool in kinds:
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.lower()]
        if int in kinds:
            return int(text)
        if float in kinds:
            return float(text)
    except (KeyError, ValueError):
        raise ConfigError(f"{variable}={text!r} cannot be read.", allowed=f"It takes {hint}.", param=variable) from None
    return checked(variable, text, hint)


def named_values(name: str, value: Any) -> dict[str, Any]:
    """What a mapping, its JSON, or a settings object says; of an object, what differs from its defaults.

    Raises:
        ConfigError: It is none of these.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: given for f in fields(value) if (given := getattr(value, f.name)) != f.default}
    if isinstance(value, str):
        return _json_object(name, value)
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{name}={value!r} is of type {type(value).__name__}.",
            allowed="A mapping or its JSON.",
            param=name,
        )
    return {str(key): one for key, one in value.items()}


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        found = error
    if not isinstance(found, dict):
        raise ConfigError(f"{name}={text!r}.", allowed="It is a JSON object.", param=name)
    return found


def kinds_of(hint: Any) -> tuple[type, ...]:
    """The types that a hint allows; containers without what they hold."""
    return tuple(typing.get_origin(part) or part for part in _members(hint))


def at_least(least: int, name: str, value: float) -> None:
    """Raise `ConfigError` where `value` is smaller."""
    if value < least:
        raise ConfigError(f"{name}={value}.", allowed=f"It is at least {least}.", param=name)


def _made(cls: type, name: str, given: Mapping[str, Any]) -> Any:
    known = [f.name for f in fields(cast(Any, cls))]
    # What a class takes beside its fields is there to be refused, in words of its own.
    unknown = sorted(set(given) - set(known) - set(getattr(cls, "REMOVED", ())))
    if unknown:
        raise ConfigError(
            f"{name} has no field {unknown[0]!r}.",
            allowed=f"Its fields are {', '.join(known)}.",
            param=f"{name}.{unknown[0]}",
        )
    return cls(**given)


def _members_checked(name: str, values: tuple[Any, ...], hint: Any) -> tuple[Any, ...]:
    kind = _member_kind(hint)
    wrong = [value for value in values if not isinstance(value, kind) or isinstance(value, bool)]
    if wrong:
        raise ConfigError(f"{name} holds {wrong[0]!r}.", allowed=f"It holds {kind.__name__} alone.", param=name)
    return values


def _member_kind(hint: Any) -> type:
    """What the tuples of a hint hold."""
    kind: type = next(typing.get_args(part)[0] for part in _members(hint) if typing.get_origin(part) is tuple)
    return kind


def _members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(typing.get_args(hint))
    return (hint,)
