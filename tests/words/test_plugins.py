"""Guests enter by the door that built-ins use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cenote import LLM, models, plugins
from cenote.errors import ConfigError, ForwardFailed, UnknownArchitecture
from cenote.hookspecs import hookimpl
from cenote.layers import pooling
from support.rows import assert_equal

if TYPE_CHECKING:
    from support.fixtures import Tiny


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
    with pytest.raises(UnknownArchitecture, match=r"model_type='guest-bert'.*Served are albert, bert"):
        models.find({"model_type": "guest-bert"})


def test_two_plugins_with_one_name_are_refused(guest: Guest) -> None:
    other = Guest({"bert": "cenote.models.roberta"})
    plugins.register(other)
    try:
        with pytest.raises(ConfigError, match="Two plugins serve model_type='bert'"):
            plugins.architectures()
    finally:
        plugins.unregister(other)


class Pools:
    def __init__(self, **brought: Any) -> None:
        self.brought = brought

    @hookimpl
    def cenote_poolings(self) -> Mapping[str, Any]:
        return self.brought


@pytest.mark.parametrize(
    ("brought", "message"),
    [
        ({"mean": "cenote.layers.pooling:last"}, "Two plugins bring the pooling 'mean': Cenote itself and"),
        ({"odd": "cenote.layers.pooling:nothing"}, "'odd' of a plugin cannot be loaded: AttributeError"),
        ({}, "No plugin brings the pooling 'odd'"),
    ],
)
def test_a_pooling_that_cannot_be_is_refused(brought: dict[str, Any], message: str) -> None:
    guest = Pools(**brought)
    plugins.register(guest)
    try:
        with pytest.raises(ConfigError, match=message):
            plugins.pooling("odd")
    finally:
        plugins.unregister(guest)


def test_rows_of_another_shape_or_precision_are_refused(tiny: Tiny) -> None:
    guest = Pools(wide=lambda rows, spans: rows.repeat(1, 2)[: len(spans.ends_S)], long=lambda rows, spans: rows)
    half = Pools(half=lambda rows, spans: rows[spans.firsts_S].bfloat16(), fine=pooling.last)
    plugins.register(guest)
    plugins.register(half)
    try:
        with LLM(str(tiny("bert"))) as llm:
            for mode in ("wide", "long", "half"):
                with pytest.raises(ForwardFailed) as failed:
                    llm.embed("a b", pooling=mode, use_tqdm=False)
                assert f"The pooling '{mode}' of a plugin gives" in str(failed.value.__cause__)
            fine = llm.embed(["a", "b c"], pooling="fine", output="numpy", use_tqdm=False)
            assert_equal(fine, llm.embed(["a", "b c"], pooling="last", output="numpy", use_tqdm=False))
    finally:
        plugins.unregister(guest)
        plugins.unregister(half)


def install(folder: Path, source: str) -> None:
    (folder / "guest_plugin.py").write_text(source)
    info = folder / "guest_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[cenote]\nguest = guest_plugin\n")


def listed(folder: Path, env: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    code = "from cenote import plugins; print(plugins.architectures()['guest'])"
    paths = f"{folder}:{env['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**env, "PYTHONPATH": paths, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installed_package_is_found(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    hook = "from cenote.hookspecs import hookimpl\n\n@hookimpl\ndef cenote_architectures():\n"
    install(tmp_path, hook + "    return {'guest': 'guest_plugin'}\n")
    assert listed(tmp_path, subprocess_env).stdout.strip() == "guest_plugin"
    assert listed(tmp_path, subprocess_env, VLLM_PLUGINS="other, guest").stdout.strip() == "guest_plugin"
    assert "KeyError: 'guest'" in listed(tmp_path, subprocess_env, VLLM_PLUGINS="other").stderr
    assert "KeyError: 'guest'" in listed(tmp_path, subprocess_env, VLLM_PLUGINS="guest", CENOTE_PLUGINS="").stderr
    missing = listed(tmp_path, subprocess_env, CENOTE_PLUGINS="other,guest").stderr
    assert "CENOTE_PLUGINS names other, which is not installed. Installed are guest" in missing


def test_an_installed_package_that_fails_stops_the_start(tmp_path: Path, subprocess_env: dict[str, str]) -> None:
    install(tmp_path, "raise RuntimeError('broken guest')\n")
    assert "cannot be loaded: RuntimeError: broken guest" in listed(tmp_path, subprocess_env).stderr
