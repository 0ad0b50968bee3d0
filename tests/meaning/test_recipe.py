"""What is decided about a checkpoint, and from where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cenote.checkpoint import open_checkpoint
from cenote.config import ModelSettings, PoolerConfig
from cenote.errors import CheckpointError, ConfigError, UnknownModule
from cenote.recipe import Recipe, resolve
from cenote.steps import Dense as DenseStep
from cenote.steps import LayerNorm, Pooling
from support.fixtures import Tiny, TinySentence
from support.sentence_folders import Dense


def recipe(folder: Path, **settings: Any) -> Recipe:
    return resolve(open_checkpoint(str(folder)), ModelSettings(**settings))


def change(source: Path, to: Path, **files: dict[str, Any]) -> Path:
    folder = Path(shutil.copytree(source, to))
    for name, values in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def test_the_default_model() -> None:
    found = resolve(open_checkpoint(""), ModelSettings())
    assert (found.max_len, found.embedding_size, found.normalize) == (256, 384, True)
    assert found.steps == (Pooling(("mean",), path="1_Pooling"),)
    assert found.sources["max_len"] == "sentence_bert_config.json: max_seq_length"
    assert (found.tasks, found.default_task) == (("embed", "token_embed"), "embed")


def test_every_value_has_a_source() -> None:
    found = resolve(open_checkpoint(""), ModelSettings())
    derived = {"name", "checkpoint", "transformer", "model", "sources", "routing", "routes"}
    assert set(found.sources) == (set(found.__dataclass_fields__) - derived) | {"pooling"}


def test_every_value_of_a_classifier_has_a_source(tiny: Tiny) -> None:
    found = recipe(
        tiny("bert", head="sequence_classification", num_labels=2), pooler_config=PoolerConfig(logit_mean=0.5)
    )
    assert found.classifier is not None
    derived = {"name", "checkpoint", "transformer", "model", "sources", "routing", "routes"}
    of_classifier = set(found.classifier.__dataclass_fields__) - {"head"}
    assert set(found.sources) == (set(found.__dataclass_fields__) - derived) | of_classifier
    assert (found.sources["logit_mean"], found.sources["logit_sigma"]) == ("user", "default")
    assert (found.tasks, found.default_task) == (("classify", "token_classify"), "classify")


def test_steps_in_their_order(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling=["cls", "mean"], dense=Dense(), layer_norm=True, normalize=True)
    found = recipe(folder)
    assert [type(step) for step in found.steps] == [Pooling, DenseStep, LayerNorm]
    assert found.normalize
    assert found.embedding_size == Dense().out_features


def test_without_modules_the_first_token_is_pooled_and_normalised(tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "cenote")
    found = recipe(tiny("bert"))
    assert (found.steps, found.normalize) == ((Pooling(("cls",)),), True)
    assert found.sources["steps"] == "default: no modules.json"
    assert caplog.text.count("has no modules.json") == 1


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "distilbert", "electra", "xlm-roberta", "camembert"])
def test_the_longest_text_is_the_positions(tiny: Tiny, tmp_path: Path, family: str) -> None:
    folder = change(tiny(family), tmp_path / family, tokenizer_config={"model_max_length": 10**30})
    found = recipe(folder)
    assert (found.max_len, found.sources["max_len"]) == (70, "config.json: positions")


def test_the_tokenizer_s_limit_counts_where_the_folder_states_none(tiny: Tiny, tmp_path: Path) -> None:
    folder = change(tiny("bert"), tmp_path / "m", tokenizer_config={"model_max_length": 33})
    found = recipe(folder)
    assert (found.max_len, found.sources["max_len"]) == (33, "tokenizer_config.json: model_max_length")
    assert recipe(folder, max_model_len=70).max_len == 70
    with pytest.raises(ConfigError, match=r"\(71\) is greater than the derived max_model_len \(70\)"):
        recipe(folder, max_model_len=71)
    with pytest.raises(ConfigError, match="max_model_len=0"):
        recipe(folder, max_model_len=0)


def test_prompts_and_similarity_come_from_their_file(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(prompts={"query": "q: "}, default_prompt_name="query", similarity="dot")
    found = recipe(folder)
    assert found.prompts["query"] == "q: "
    assert (found.default_prompt_name, found.similarity) == ("query", "dot")
    assert found.sources["similarity"] == "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("name", "values", "error", "message"),
    [
        ("config", {"model_type": "unheard-of"}, CheckpointError, "model_type='unheard-of'"),
        ("config", {"hidden_size": None}, CheckpointError, "config.json has no 'hidden_size'"),
        ("config", {"hidden_act": "snake"}, CheckpointError, "hidden_act='snake'"),
        ("config", {"position_embedding_type": "relative_key"}, CheckpointError, "relative_key"),
        ("config_sentence_transformers", {"default_prompt_name": "x"}, CheckpointError, "default_prompt_name='x'"),
        ("1_Pooling/config", {"pooling_mode": "median"}, UnknownModule, "median"),
    ],
)
def test_what_cannot_be_served_stops_the_start(
    tiny_sentence: TinySentence, tmp_path: Path, name: str, values: dict[str, Any], error: Any, message: str
) -> None:
    folder = change(tiny_sentence(), tmp_path / "m", **{name: values})
    with pytest.raises(error, match=message):
        recipe(folder)


@pytest.mark.parametrize(
    "kind",
    [
        "sentence_transformers.models.CLIPModel",
        "somewhere_else.models.Normalize",
        "sentence_transformers.models.Unheard",
    ],
)
def test_an_unknown_module_stops_the_start(tiny_sentence: TinySentence, tmp_path: Path, kind: str) -> None:
    folder = Path(shutil.copytree(tiny_sentence(), tmp_path / "m"))
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_X", "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnknownModule, match=kind):
        recipe(folder)


def test_modules_that_do_not_fit_each_other_stop_the_start(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    folder = change(tiny_sentence(dense=Dense()), tmp_path / "m", **{"2_Dense/config": {"in_features": 61}})
    with pytest.raises(CheckpointError, match="takes 61 values, but gets 60"):
        recipe(folder)
