"""The door for guests: built-ins, installed packages and what a program registers itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar

import pluggy

from . import hookspecs
from .config import allowed_plugins
from .errors import ConfigError
from .hookspecs import PROJECT, hookimpl
from .steps import POOLINGS

T = TypeVar("T")

IO_GROUPS: Final = ("cenote.io_processors", "vllm.io_processor_plugins")
"""Entry-point groups of IO processors, ours before the reference's: a name in both is ours. What a name stands for is a
function without arguments that gives the dotted name of a class, or None where the plugin does not want to be used."""


class BuiltIn:
    """What comes with Cenote."""

    @hookimpl
    def cenote_architectures(self) -> Mapping[str, str]:
        """Every file of `cenote.models`, under its name."""
        return _files("models")

    @hookimpl
    def cenote_tasks(self) -> Mapping[str, str]:
        """Every file of `cenote.tasks`, under its name."""
        return _files("tasks")

    @hookimpl
    def cenote_uses(self) -> Mapping[str, str]:
        """Every file of `cenote.uses`, under its name."""
        return _files("uses")


def _files(package: str) -> dict[str, str]:
    """Name of each file of one of our packages -> its dotted name."""
    spec = importlib.util.find_spec(f"{PROJECT}.{package}")
    assert spec is not None
    return {
        file.name: f"{PROJECT}.{package}.{file.name}" for file in pkgutil.iter_modules(spec.submodule_search_locations)
    }


@cache
def manager() -> pluggy.PluginManager:
    """The one plugin manager of the process, with built-ins and installed packages in it.

    Raises:
        ConfigError: An installed plugin cannot be imported, or one that `CENOTE_PLUGINS` names is not there.
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(hookspecs)
    plugins.register(BuiltIn(), name="built-in")
    for name in _not_allowed():
        plugins.set_blocked(name)
    try:
        plugins.load_setuptools_entrypoints(PROJECT)
    except Exception as error:
        # A guest's import can fail in any way; serving without it could give another model than the one meant.
        raise ConfigError(
            f"An installed plugin of Cenote cannot be loaded: {type(error).__name__}: {error}.",
            fix="Repair or uninstall it.",
        ) from error
    return plugins


def _not_allowed() -> set[str]:
    """Names of installed plugins that the environment leaves out."""
    allowed, must_be_there = allowed_plugins()
    if allowed is None:
        return set()
    points = {point.name for group in (PROJECT, *IO_GROUPS) for point in importlib.metadata.entry_points(group=group)}
    if must_be_there and allowed - points:
        raise ConfigError(
            f"CENOTE_PLUGINS names {', '.join(sorted(allowed - points))}, which is not installed.",
            allowed=f"Installed are {', '.join(sorted(points)) or 'none'}.",
            fix="Install it, or leave it out.",
            param="CENOTE_PLUGINS",
        )
    return points - allowed


def register(plugin: object) -> None:
    """Let a module or object with `hookimpl`s in, for this process."""
    manager().register(plugin)
    _forget()


def unregister(plugin: object) -> None:
    """Take back what `register` let in."""
    manager().unregister(plugin)
    _forget()


def _forget() -> None:
    """What was found among the plugins that there were."""
    for found in (tasks, uses, task, use):
        found.cache_clear()


def architectures() -> dict[str, str]:
    """`model_type` -> dotted module name, over all plugins.

    Raises:
        ConfigError: Two plugins bring the same name.
    """
    return _merged(manager().hook.cenote_architectures(), "serve model_type=")


@cache
def tasks() -> Mapping[str, Any]:
    """Name of a task -> its module, object or dotted name, over all plugins, built-in ones last.

    Raises:
        ConfigError: Two plugins bring the same name.
    """
    return _merged(manager().hook.cenote_tasks(), "bring the task ")


@cache
def uses() -> Mapping[str, Any]:
    """The same of uses."""
    return _merged(manager().hook.cenote_uses(), "bring the use ")


@cache
def task(name: str) -> Any:
    """The module or object of a task of `tasks`; raises `ConfigError` where it cannot be imported."""
    return _resolved("task", name, tasks()[name])


@cache
def use(name: str) -> Any:
    """The same of `uses`."""
    return _resolved("use", name, uses()[name])


def is_built_in(given: Any) -> bool:
    """Whether what stands for a name of a plugin comes with Cenote."""
    return isinstance(given, str) and given.startswith(f"{PROJECT}.")


def source(hook: str, name: str) -> str:
    """Which plugin brings `name` by the hook called `hook`; "" for Cenote itself."""
    for one in getattr(manager().hook, hook).get_hookimpls():
        if name in one.function():
            its_name = str(one.plugin_name)
            # An object that a program registers has a number for a name.
            called = type(one.plugin).__name__ if its_name.isdigit() else its_name
            return "" if isinstance(one.plugin, BuiltIn) else f"plugin {called}"
    return ""


def asked_by_user(hook: str, name: str) -> str:
    """The source of a value that the user names, with the plugin that brings it if one does."""
    plugin = source(hook, name)
    return f"user: of {plugin}" if plugin else "user"


def poolings() -> dict[str, Any]:
    """Mode of pooling -> its function or the dotted name of it, over all guests.

    Raises:
        ConfigError: Two plugins bring the same mode, or one brings what is there already.
    """
    built_in = [dict.fromkeys(POOLINGS, "Cenote itself")]
    found = _merged([*built_in, *manager().hook.cenote_poolings()], "bring the pooling ")
    return {name: given for name, given in found.items() if name not in POOLINGS}


def pooling(name: str) -> Any:
    """The function of a guest's mode of pooling.

    Raises:
        ConfigError: There is none, or it cannot be imported.
    """
    given = poolings().get(name)
    if given is None:
        raise ConfigError(f"No plugin brings the pooling {name!r}.", fix="Install it.", param="pooling")
    return _resolved("pooling", name, given)


def io_processor(name: str) -> Any:
    """The class of the IO processor `name`; nothing is imported but that one.

    Raises:
        ConfigError: There is none, or it cannot be imported, or two plugins bring it.
    """
    told = _merged(manager().hook.cenote_io_processors(), "bring the IO processor ")
    points = {point.name: point for group in reversed(IO_GROUPS) for point in _entry_points(group)}
    known = sorted({*told, *points})
    if not known:
        raise ConfigError(
            f"No IOProcessor plugins installed but one is required ({name}).",
            fix="Install it, or leave out io_processor_plugin.",
            param="io_processor_plugin",
        )
    try:
        given = told[name] if name in told else points[name].load()() if name in points else None
        found = pkgutil.resolve_name(given) if isinstance(given, str) else given
    except Exception as error:
        # A guest's import can fail in any way.
        raise ConfigError(
            f"The IO processor plugin {name!r} cannot be loaded: {type(error).__name__}: {error}.",
            fix="Repair or uninstall it.",
            param="io_processor_plugin",
        ) from error
    if found is None:
        raise ConfigError(
            f"The model requires the {name!r} IO Processor plugin but it is not installed.",
            allowed=f"Available plugins: {known}" if name not in known else f"{name!r} is, but declines to be used.",
            fix="Install it, or name another as io_processor_plugin.",
            param="io_processor_plugin",
        )
    return found


def _resolved(kind: str, name: str, given: Any) -> Any:
    try:
        return pkgutil.resolve_name(given) if isinstance(given, str) else given
    except Exception as error:
        # A guest's import can fail in any way.
        raise ConfigError(
            f"The {kind} {name!r} of a plugin cannot be loaded: {type(error).__name__}: {error}.",
            fix="Repair or uninstall it.",
            param=kind,
        ) from error


def _entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
    allowed, _ = allowed_plugins()
    points = [
        point for point in importlib.metadata.entry_points(group=group) if allowed is None or point.name in allowed
    ]
    _merged([{point.name: point.value} for point in points], "bring the IO processor ")
    return points


def _merged(brought: list[Mapping[str, T]], what: str) -> dict[str, T]:
    """What all plugins bring, by name.

    Raises:
        ConfigError: Two bring the same name.
    """
    found: dict[str, T] = {}
    for one in brought:
        for name, thing in one.items():
            if found.setdefault(name, thing) != thing:
                raise ConfigError(
                    f"Two plugins {what}{name!r}: {found[name]} and {thing}.", fix="Uninstall one of them."
                )
    return found
