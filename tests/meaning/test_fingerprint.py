"""What changes a fingerprint, and what does not."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cenote import fingerprint as module
from cenote.checkpoint import open_checkpoint
from cenote.config import MachineSettings, ModelSettings, PoolerConfig
from cenote.fingerprint import Fingerprint, fingerprint
from cenote.recipe import resolve
from cenote.steps import Splade
from support.classifiers import changed
from support.fixtures import Tiny, TinySentence


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for what is remembered."""
    folder = tmp_path / "remembered"
    folder.mkdir()
    monkeypatch.setattr(module, "_remembered", lambda: folder)
    return folder


def of(folder: Path, words: Path | None = None, **settings: Any) -> str:
    recipe = resolve(open_checkpoint(str(folder)), ModelSettings(**settings))
    tokenizer = recipe.transformer if words is None else open_checkpoint(str(words))
    return fingerprint(recipe, tokenizer, MachineSettings(device="cpu"))


def test_it_is_the_same_for_the_same_model_wherever_it_lies(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    folder = tiny_sentence(normalize=True)
    found = of(folder)
    assert len(found) == 32
    assert int(found, 16) > 0
    assert of(Path(shutil.copytree(folder, tmp_path / "copy"))) == found
    assert of(changed(folder, tmp_path / "m", transformers_version="9.9.9", _name_or_path="elsewhere")) == found
    assert of(folder, on_long="cut", trust_remote_code=True) == found
    # What the user decides as another folder's files do comes to the same.
    assert of(tiny_sentence(), pooler_config=PoolerConfig(seq_pooling_type="MEAN", use_activation=True)) == found


def test_all_that_decides_the_vectors_changes_it(tiny_sentence: TinySentence, tiny: Tiny, tmp_path: Path) -> None:
    plain: dict[str, Any] = {"matryoshka_dimensions": [8]}
    folder = tiny_sentence(**plain)
    st = "config_sentence_transformers.json"
    spoken = Path(shutil.copytree(folder, tmp_path / "spoken"))
    (spoken / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    found = [
        of(folder),
        of(spoken),
        of(tiny_sentence(seed=1, **plain)),
        of(tiny_sentence(pooling="cls", **plain)),
        of(tiny_sentence(normalize=True, **plain)),
        of(tiny_sentence(include_prompt=False, **plain)),
        of(changed(folder, tmp_path / "prompts", st, prompts={"query": "q: "})),
        of(changed(folder, tmp_path / "default", st, prompts={"query": "q: "}, default_prompt_name="query")),
        of(changed(folder, tmp_path / "config", layer_norm_eps=1e-7)),
        of(changed(folder, tmp_path / "words", "tokenizer_config.json", model_max_length=60), max_model_len=70),
        of(folder, words=tiny("roberta")),
        of(folder, max_model_len=50),
        of(folder, dtype="bfloat16"),
        of(folder, pooler_config=PoolerConfig(dimensions=8)),
        of(folder, pooler_config=PoolerConfig(seq_pooling_type="LAST")),
        of(folder, pooler_config=PoolerConfig(enable_chunked_processing=True)),
        of(folder, chunk_overlap=3),
        of(folder, hf_overrides={"layer_norm_eps": 1e-8}),
        of(tiny("bert", head="sequence_classification", num_labels=1)),
        of(
            tiny("bert", head="sequence_classification", num_labels=1),
            pooler_config=PoolerConfig(logit_mean=1.0),
        ),
    ]
    assert len(set(found)) == len(found)


def test_how_sparse_rows_are_made_changes_it(tiny: Tiny) -> None:
    found = resolve(open_checkpoint(str(tiny("bert", head="masked_lm"))), ModelSettings())
    assert found.sparse is not None
    summed = replace(found, sparse=replace(found.sparse, step=Splade("sum")))
    sharper = replace(found, sparse=replace(found.sparse, max_active=5))
    prints = {fingerprint(one, one.transformer, MachineSettings(device="cpu")) for one in (found, summed, sharper)}
    assert len(prints) == 3


def test_a_file_is_read_once_until_it_changes(
    tiny: Tiny, tmp_path: Path, remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(tiny("bert"), tmp_path / "m"))
    found = of(folder)
    kept = sorted(remembered.iterdir())
    assert kept
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", None)
        assert of(folder) == found
    weights = folder / "model.safetensors"
    stored = bytearray(weights.read_bytes())
    stored[-1] ^= 1
    weights.write_bytes(stored)
    os.utime(weights, ns=(0, 0))
    assert of(folder) != found
    assert len(list(remembered.iterdir())) == len(kept) + 1


def test_nothing_is_remembered_where_nothing_can_be_written(
    tiny: Tiny, remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = of(tiny("bert"))
    monkeypatch.setattr(module, "_remembered", lambda: remembered / "a file that is not there" / "deeper")
    assert of(tiny("bert")) == found


def test_the_first_who_asks_begins_and_nobody_waits_who_need_not(tiny: Tiny) -> None:
    recipe = resolve(open_checkpoint(str(tiny("bert"))), ModelSettings())
    asked = Fingerprint(recipe, recipe.transformer, MachineSettings(device="cpu"))
    assert asked.known() in (None, asked.value())
    assert asked.known() == asked.value() == of(tiny("bert"))


def test_a_model_that_is_gone_has_none(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(tiny("bert"), tmp_path / "m"))
    recipe = resolve(open_checkpoint(str(folder)), ModelSettings())

    def gone(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(module, "_hash", gone)
    asked = Fingerprint(recipe, recipe.transformer, MachineSettings(device="cpu"))
    with pytest.raises(FileNotFoundError):
        asked.value()
    assert asked.known() is None
