"""Guests enter by the door that built-ins use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cenote import models, plugins
from cenote.errors import ConfigError, UnknownArchitecture
from cenote.hookspecs import hookimpl


class Guest:
    def __init__(self, brought: Mapping[str, str]) -> None:
        self.brought = brought

    @hookimpl
    def cenote_architectures(self) -> Mapping[str, str]:
        return self.brought


@pytest.fixture
def guest() -> Iterator[Guest]:
    visitor = Guest({"guest-bert": "cenote.models.bert"})
    plugins.register(visitor)
    yield visitor
    plugins.unregister(visitor)


def test_built_ins_and_guests_are_found_alike(guest: Guest) -> None:
    assert models.find({"model_type": "bert"}) is models.find({"model_type": "guest-bert"})


def test_a_guest_that_left_is_unknown() -> None:
    with pytest.raises(UnknownArchitecture, match=r"model_type='guest-bert'.*Served are bert"):
        models.find({"model_type": "guest-bert"})


def test_two_plugins_with_one_name_are_refused(guest: Guest) -> None:
    other = Guest({"bert": "cenote.models.roberta"})
    plugins.register(other)
    try:
        with pytest.raises(ConfigError, match="Two plugins serve model_type='bert'"):
            plugins.architectures()
    finally:
        plugins.unregister(other)


def install(folder: Path, source: str) -> None:
    (folder / "guest_plugin.py").write_text(source)
    info = folder / "guest_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[cenote]\nguest = guest_plugin\n")


def listed(folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "from cenote import plugins; print(plugins.architectures()['guest'])"
    paths = f"{folder}:{env['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-c", code], env={**env, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )


def test_an_installed_package_is_found(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    hook = "from cenote.hookspecs import hookimpl\n\n@hookimpl\ndef cenote_architectures():\n"
    install(tmp_path, hook + "    return {'guest': 'guest_plugin'}\n")
    assert listed(tmp_path, subprocess_env).stdout.strip() == "guest_plugin"


def test_an_installed_package_that_fails_stops_the_start(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    install(tmp_path, "raise RuntimeError('broken guest')\n")
    assert "cannot be loaded: RuntimeError: broken guest" in listed(tmp_path, subprocess_env).stderr
