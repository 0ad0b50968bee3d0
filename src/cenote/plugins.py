"""The door for guests: built-ins, installed packages and what a program registers itself."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache

import pluggy

from . import hookspecs
from .errors import ConfigError
from .hookspecs import PROJECT, hookimpl


class BuiltIn:
    """What comes with Cenote."""

    @hookimpl
    def cenote_architectures(self) -> Mapping[str, str]:
        """Every file of `cenote.models`, under its name."""
        spec = importlib.util.find_spec(f"{PROJECT}.models")
        assert spec is not None
        files = pkgutil.iter_modules(spec.submodule_search_locations)
        return {file.name: f"{PROJECT}.models.{file.name}" for file in files}


@cache
def manager() -> pluggy.PluginManager:
    """The one plugin manager of the process, with built-ins and installed packages in it.

    Raises:
        ConfigError: An installed plugin cannot be imported.
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(hookspecs)
    plugins.register(BuiltIn(), name="built-in")
    try:
        plugins.load_setuptools_entrypoints(PROJECT)
    except Exception as error:
        # A guest's import can fail in any way; serving without it could give another model than the one meant.
        raise ConfigError(
            f"An installed plugin of Cenote cannot be loaded: {type(error).__name__}: {error}.",
            fix="Repair or uninstall it.",
        ) from error
    return plugins


def register(plugin: object) -> None:
    """Let a module or object with `hookimpl`s in, for this process."""
    manager().register(plugin)


def unregister(plugin: object) -> None:
    """Take back what `register` let in."""
    manager().unregister(plugin)


def architectures() -> dict[str, str]:
    """`model_type` -> dotted module name, over all plugins.

    Raises:
        ConfigError: Two plugins bring the same name.
    """
    found: dict[str, str] = {}
    for brought in manager().hook.cenote_architectures():
        for model_type, module in brought.items():
            if found.setdefault(model_type, module) != module:
                raise ConfigError(
                    f"Two plugins serve model_type={model_type!r}: {found[model_type]} and {module}.",
                    fix="Uninstall one of them.",
                )
    return found
