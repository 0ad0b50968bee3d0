"""Profiles fill in what nobody asked for: on the machine, for the model and with the version that they are of."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cenote import LLM, profiles
from cenote.config import MachineSettings, changed, resolve, source_of
from support.profiles import keep_in, leave

Decided = dict[str, tuple[Any, str]]
TUNED = {"num_workers": 1, "threads_per_worker": 2, "max_batch_tokens": 77}


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of profiles of its own for each test."""
    return keep_in(tmp_path, monkeypatch)


@pytest.fixture
def decided(folder: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., Decided]:
    """Open the model with these arguments and say what it runs with, each value with its source."""

    def open_it(**arguments: Any) -> Decided:
        caplog.clear()
        with caplog.at_level(logging.INFO), LLM(str(folder), device="cpu", **arguments) as llm:
            return profiles.decided(llm.engine.machine, llm.engine.runner)

    return open_it


def test_a_profile_is_used_and_named(
    folder: Path, decided: Callable[..., Decided], caplog: pytest.LogCaptureFixture
) -> None:
    before = decided()
    assert {source for _, source in before.values()} == {"default: this machine", "default"}
    path = leave(folder, TUNED)
    found = decided()
    assert {name: found[name] for name in TUNED} == {name: (value, f"profile {path}") for name, value in TUNED.items()}
    assert found["quantization"] == ("none", "default")
    assert f"By the profile {path}: num_workers=1, threads_per_worker=2, max_batch_tokens=77." in caplog.text


def test_user_before_environment_before_profile_before_default(
    folder: Path, decided: Callable[..., Decided], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decided()["max_batch_tokens"] == (1024, "default: this machine")
    path = leave(folder, TUNED)
    assert decided()["max_batch_tokens"] == (77, f"profile {path}")
    monkeypatch.setenv("CENOTE_MAX_BATCH_TOKENS", "66")
    assert decided()["max_batch_tokens"] == (66, "env CENOTE_MAX_BATCH_TOKENS")
    assert decided(max_batch_tokens=55)["max_batch_tokens"] == (55, "user")
    # What the default means can be asked for too.
    assert decided(max_batch_tokens=0)["max_batch_tokens"] == (1024, "user")


def test_workers_and_threads_go_together(
    folder: Path, decided: Callable[..., Decided], caplog: pytest.LogCaptureFixture
) -> None:
    leave(folder, {**TUNED, "threads_per_worker": 7})
    found = decided(num_workers=3)
    assert found["num_workers"] == (3, "user")
    assert found["threads_per_worker"][0] != 7
    assert found["max_batch_tokens"][0] == 77
    assert "num_workers, threads_per_worker as given by the user or the environment" in caplog.text


def test_a_profile_can_be_left_out(
    folder: Path, decided: Callable[..., Decided], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(folder, TUNED)
    assert decided(profile=False)["max_batch_tokens"] == (1024, "default: this machine")
    monkeypatch.setenv("CENOTE_PROFILE", "off")
    assert decided()["max_batch_tokens"] == (1024, "default: this machine")
    assert decided(profile=True)["max_batch_tokens"][0] == 77


@pytest.mark.parametrize(
    ("field", "name", "value", "said"),
    [
        ("machine", "cores", 999, "it is of another machine: cores was 999 and is"),
        ("machine", "processor", "Z80", "it is of another machine: processor was 'Z80' and is"),
        ("machine", "isa", "SSE", "it is of another machine: isa was 'SSE' and is"),
        ("machine", "device", "a GPU", "it is of another machine: device was 'a GPU' and is 'cpu'"),
        ("versions", "cenote", "0.0.1", "it is of another version: cenote was '0.0.1' and is"),
        ("versions", "torch", "1.0", "it is of another version: torch was '1.0' and is"),
    ],
)
def test_another_machine_or_version_is_told(
    folder: Path,
    decided: Callable[..., Decided],
    caplog: pytest.LogCaptureFixture,
    field: str,
    name: str,
    value: Any,
    said: str,
) -> None:
    path = leave(folder, TUNED)
    written = json.loads(path.read_text())
    written[field][name] = value
    path.write_text(json.dumps(written))
    assert decided()["max_batch_tokens"] == (1024, "default: this machine")
    assert f"The profile {path} is not used: {said}" in caplog.text


def test_a_profile_is_of_one_model_as_it_is_set_up(
    folder: Path, decided: Callable[..., Decided], caplog: pytest.LogCaptureFixture
) -> None:
    path = leave(folder, TUNED)
    assert decided(max_model_len=50)["max_batch_tokens"][0] == 1024
    assert "those of its weights were made for other settings of the model" in caplog.text
    path.unlink()
    leave(folder, TUNED, weights_bytes=1)
    assert decided()["max_batch_tokens"][0] == 1024
    assert "rofile" not in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"settings": {}}',
        {"settings": {"max_batch_tokens": "many"}},
        {"settings": {"max_batch_tokens": -1}},
        {"settings": {"host": "0.0.0.0"}},
        {"settings": {"dtype": 16}},
        {"settings": {"dtype": "float7"}},
        {"settings": {"quantization": "int3"}},
        {"settings": 3},
        {"machine": "mine"},
    ],
    ids=str,
)
def test_a_file_that_is_no_profile_is_told_and_ignored(
    folder: Path, decided: Callable[..., Decided], caplog: pytest.LogCaptureFixture, content: Any
) -> None:
    path = leave(folder, TUNED)
    text = content if isinstance(content, str) else json.dumps({**json.loads(path.read_text()), **content})
    path.write_text(text)
    assert decided()["max_batch_tokens"] == (1024, "default: this machine")
    assert f"The profile {path} cannot be read: " in caplog.text
    assert "or make it anew with `cenote tune`. It is ignored." in caplog.text


def test_a_disk_that_takes_no_folder_keeps_no_model_from_opening(
    decided: Callable[..., Decided], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Path:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(profiles, "folder", refused)
    assert decided()["max_batch_tokens"] == (1024, "default: this machine")
    assert "Read-only file system" in caplog.text


def test_a_precision_of_a_profile_counts_like_one_that_was_asked_for(folder: Path) -> None:
    with LLM(str(folder), device="cpu") as plain, LLM(str(folder), device="cpu", dtype="bfloat16") as asked:
        path = leave(folder, {"dtype": "bfloat16"})
        with LLM(str(folder), device="cpu") as tuned, LLM(str(folder), device="cpu", dtype="float32") as given:
            assert tuned.fingerprint == asked.fingerprint != plain.fingerprint == given.fingerprint
            assert tuned.recipe.decided()["dtype"] == ("bfloat16", f"profile {path}")
            assert tuned.embed(["a"], output="numpy").tobytes() == asked.embed(["a"], output="numpy").tobytes()


def test_settings_remember_where_their_values_come_from() -> None:
    found = resolve(MachineSettings, {"num_workers": 0}, {"CENOTE_MAX_BATCH_SEQS": "3"}).settings
    names = ("num_workers", "max_batch_seqs", "device")
    assert [source_of(found, name) for name in names] == ["user", "env CENOTE_MAX_BATCH_SEQS", "default"]
    assert found == MachineSettings(max_batch_seqs=3)
    other = changed(found, {"device": "cpu"}, "elsewhere")
    assert [source_of(other, name) for name in names] == ["user", "env CENOTE_MAX_BATCH_SEQS", "elsewhere"]
    by_hand = MachineSettings(num_workers=2)
    assert [source_of(by_hand, name) for name in names] == ["user", "default", "default"]
