"""What a package from outside can bring. It marks its functions with `hookimpl` and names its module as an entry
point of the group `cenote`; built-ins enter by the same door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

PROJECT = "cenote"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def cenote_architectures() -> Mapping[str, str]:  # type: ignore[empty-body]
    """Architectures: `model_type` of `config.json` -> dotted name of a module that keeps the contract of
    `cenote.models`. The module is imported when a checkpoint asks for it.
    """


@hookspec
def cenote_poolings() -> Mapping[str, str | Callable[..., Any]]:  # type: ignore[empty-body]
    """Modes of pooling: a lower-case name -> a function `(hidden_QD, spans) -> rows_SD` in float32, as those of
    `layers.pooling`, or its dotted name, which is imported when rows are first read with it.
    """


@hookspec
def cenote_tasks() -> Mapping[str, str | object]:  # type: ignore[empty-body]
    """Tasks: a name -> a module or an object that keeps the contract of `guests.GuestTask`, or its dotted name, which
    is imported when a model is first asked whether it serves the task.
    """


@hookspec
def cenote_uses() -> Mapping[str, str | object]:  # type: ignore[empty-body]
    """Uses made of tasks: a name -> a module or an object that keeps the contract of `uses.Use`, or its dotted name,
    which is imported when the use is first asked for.
    """


@hookspec
def cenote_io_processors() -> Mapping[str, str | type]:  # type: ignore[empty-body]
    """IO processors: a name of its own -> a class that keeps the contract of `io_plugins.IOPlugin`, or its dotted name,
    which is imported when a model is opened with it.
    """
