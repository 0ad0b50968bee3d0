"""Session fixtures, made once and shared; a `conftest.py` takes them with `pytest_plugins = ["support.fixtures"]`.

The folders they return are shared by all tests of the session: read them, copy them, do not write into them.
The makers are imported when first used: they take seconds, which tests without a model should not pay.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest


class Tiny(Protocol):
    """`tiny_transformer` without the folder."""

    def __call__(self, model_type: str, **arguments: Any) -> Path: ...


class TinySentence(Protocol):
    """`sentence_transformer` without the folder."""

    def __call__(self, **arguments: Any) -> Path: ...


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """`tiny("bert", head="masked_lm")`: the folder of a tiny model; equal arguments give the same folder."""
    from .checkpoints import tiny_transformer

    make = _once(tmp_path_factory, "tiny")
    return lambda model_type, **arguments: make(
        lambda folder: tiny_transformer(model_type, folder, **arguments), (model_type, sorted(arguments.items()))
    )


@pytest.fixture(scope="session")
def tiny_sentence(tmp_path_factory: pytest.TempPathFactory) -> TinySentence:
    """`tiny_sentence(pooling="cls", generation="old")`: its folder; equal arguments, same folder."""
    from .sentence_folders import sentence_transformer

    make = _once(tmp_path_factory, "sentence")
    return lambda **arguments: make(lambda folder: sentence_transformer(folder, **arguments), sorted(arguments.items()))


def _once(factory: pytest.TempPathFactory, name: str) -> Callable[[Callable[[Path], Path], object], Path]:
    from transformers.utils import logging

    # Every load and save draws a bar, hundreds in a run.
    draw_no_bars: Callable[[], None] = logging.disable_progress_bar
    draw_no_bars()
    made: dict[str, Path] = {}

    def make(build: Callable[[Path], Path], arguments: object) -> Path:
        # Arguments hold lists and dicts, which cannot be keys; their repr is exact for what the makers take.
        key = repr(arguments)
        if key not in made:
            made[key] = build(factory.mktemp(name))
        return made[key]

    return make


@pytest.fixture(scope="session")
def example_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `examples/plugin` is installed in; this process has looked for installed plugins before."""
    from cenote import plugins

    from .io_plugins import pip_install

    plugins.manager()
    copy = tmp_path_factory.mktemp("project") / "plugin"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "plugin", copy)
    return pip_install(copy, tmp_path_factory.mktemp("installed"))
