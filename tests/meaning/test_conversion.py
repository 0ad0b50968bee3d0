"""What a checkpoint is made into, and what a user changes in its `config.json`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from cenote import LLM
from cenote.checkpoint import open_checkpoint
from cenote.cli.app import app
from cenote.config import ModelSettings
from cenote.config import resolve as settings_of
from cenote.errors import ConfigError, WeightMismatch
from cenote.recipe import Recipe, resolve
from support.classifiers import Reference, changed
from support.fixtures import Tiny, TinySentence
from support.parity import REFERENCE_LIMIT
from support.references import reference_vectors, worst_error
from support.texts import short_texts

TEXTS = short_texts(4)
CUT = {"truncate_prompt_tokens": -1}


def decided(folder: Path, **settings: Any) -> Recipe:
    return resolve(open_checkpoint(str(folder)), ModelSettings(model=str(folder), **settings))


def logits(folder: Path, **settings: Any) -> Any:
    with LLM(str(folder), **settings) as llm:
        outs = llm.classify(TEXTS, use_activation=False, use_tqdm=False, tokenization_kwargs=CUT)
        return [out.outputs.probs for out in outs]


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForTextEncoding", None])
def test_a_language_model_with_a_score_classifies_where_that_is_asked_for(
    tiny: Tiny, tmp_path: Path, name: str | None
) -> None:
    source = tiny("qwen3", head="sequence_classification")
    folder = changed(source, tmp_path / "m", architectures=None if name is None else [name])
    expected = [Reference(source).logits(text) for text in TEXTS]
    assert worst_error(logits(folder, convert="classify", runner="pooling"), expected) <= REFERENCE_LIMIT
    override = {"architectures": ["Qwen3ForSequenceClassification"]}
    assert worst_error(logits(folder, hf_overrides=override), expected) <= REFERENCE_LIMIT


def test_a_classifier_embeds_where_that_is_asked_for(tiny: Tiny, tiny_sentence: TinySentence) -> None:
    expected = reference_vectors(tiny_sentence(model_type="qwen3", pooling="lasttoken", normalize=True), TEXTS)
    with LLM(str(tiny("qwen3", head="sequence_classification")), convert="embed") as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")
        ours = [out.outputs.embedding for out in llm.embed(TEXTS, use_tqdm=False, tokenization_kwargs=CUT)]
    assert max(worst_error(a, b) for a, b in zip(ours, expected, strict=True)) <= REFERENCE_LIMIT


@pytest.mark.parametrize(
    ("model_type", "head", "settings", "convert", "source"),
    [
        ("qwen3", "causal_lm", {}, "embed", "config.json: architectures"),
        ("qwen3", "sequence_classification", {}, "classify", "config.json: architectures"),
        ("bert", "token_classification", {"convert": "none"}, "classify", "config.json: architectures"),
        ("bert", "base", {"convert": "none", "runner": "pooling"}, "embed", "config.json: architectures"),
        ("bert", "token_classification", {"convert": "embed"}, "embed", "user"),
        (
            "bert",
            "base",
            {"hf_overrides": {"architectures": ["BertForSequenceClassification"]}},
            "classify",
            "hf_overrides: architectures",
        ),
    ],
)
def test_a_conversion_has_a_source(
    tiny: Tiny, model_type: str, head: str, settings: dict[str, Any], convert: str, source: str
) -> None:
    recipe = decided(tiny(model_type, head=head), **settings)
    assert (recipe.convert, recipe.sources["convert"]) == (convert, source)


def test_modules_that_pool_decide_unless_the_user_does(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    folder = changed(tiny_sentence(), tmp_path / "m", architectures=["BertForSequenceClassification"])
    assert (decided(folder).convert, decided(folder).sources["convert"]) == ("embed", "modules.json")
    asked = decided(folder, convert="classify")
    assert asked.classifier is not None
    assert asked.steps == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runner": "generate"}, "This model does not support `--runner generate`."),
        ({"runner": "draft"}, "This model does not support `--runner draft`."),
        ({"task": "generate"}, "This model does not support `--runner generate`."),
        ({"convert": "none"}, "This model does not support `--runner pooling`. .* Pass `--convert <embed|classify>`"),
        ({"convert": "reward"}, "convert='reward'. Allowed are auto, none, embed, classify."),
    ],
)
def test_what_is_no_pooling_model_is_refused(tiny: Tiny, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("|", r"\|")):
        LLM(str(tiny("qwen3", head="causal_lm")), **settings)


def test_flags_are_refused_as_arguments_are(tiny: Tiny) -> None:
    folder = str(tiny("qwen3", head="causal_lm"))
    for flags, said in ((("--runner", "generate"), "does not support `--runner generate`"),
                        (("--convert", "none"), "does not support `--runner pooling`"),
                        (("--hf-overrides", "[1]"), "hf_overrides='[1]'. It is a JSON object.")):  # fmt: skip
        result = CliRunner().invoke(app, ["embed", "a", "--model", folder, *flags], prog_name="cenote")
        assert result.exit_code == 2
        assert said in result.stderr


def test_a_head_that_nobody_reads_is_refused_by_name(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(tiny("llama", head="causal_lm"), tmp_path / "m", architectures=["LlamaForRewardModel"])
    assert decided(folder).convert == "embed"
    state = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file({**state, "v_head.weight": torch.ones(1, 60)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightMismatch, match=r"1 without a use here: v_head\.weight"):
        LLM(str(folder))


def test_a_classifier_without_its_score_stops_the_start(tiny: Tiny) -> None:
    with pytest.raises(WeightMismatch, match=r"score lacks \['weight'\]"):
        LLM(str(tiny("qwen3", head="causal_lm")), convert="classify")


# What a user changes in config.json.


def _by_attributes(config: Any) -> None:
    config.num_labels = 1
    config.rope_parameters["rope_theta"] = 500.0


def _by_another(config: Any) -> dict[str, Any]:
    return {**config, "num_labels": 1, "rope_parameters": {**config["rope_parameters"], "rope_theta": 500.0}}


@pytest.mark.parametrize(
    "override",
    [{"num_labels": 1, "rope_parameters": {"rope_theta": 500.0}}, _by_attributes, _by_another],
    ids=["object", "attributes", "another"],
)
def test_overrides_are_merged_into_the_config(
    tiny: Tiny, tmp_path: Path, override: dict[str, Any] | Callable[[Any], Any]
) -> None:
    source = tiny("llama", head="sequence_classification", num_labels=1)
    (theirs,) = (tiny("llama", head="sequence_classification", num_labels=1, rope_theta=500.0),)
    # The file names three labels; another number of them makes their names void.
    folder = changed(source, tmp_path / "m", id2label={str(n): f"L{n}" for n in range(3)})
    expected = [Reference(theirs).logits(text) for text in TEXTS]
    assert worst_error([Reference(source).logits(text) for text in TEXTS], expected) > 1e-3
    assert worst_error(logits(folder, hf_overrides=override), expected) <= REFERENCE_LIMIT
    recipe = decided(folder, hf_overrides=override)
    assert recipe.classifier is not None
    assert recipe.classifier.labels == ("LABEL_0",)
    assert recipe.sources["labels"] == "hf_overrides: num_labels"


def test_labels_of_the_same_number_keep_their_names(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(
        tiny("bert", head="sequence_classification"), tmp_path / "m", id2label={"0": "a", "1": "b", "2": "c"}
    )
    recipe = decided(folder, hf_overrides={"num_labels": 3})
    assert recipe.classifier is not None
    assert recipe.classifier.labels == ("a", "b", "c")


def test_a_function_that_gives_back_no_config_is_refused(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="The function hf_overrides gave back str"):
        LLM(str(tiny("bert")), hf_overrides=lambda config: "config")


def test_overrides_come_from_the_environment_and_are_shown(tiny: Tiny, tmp_path: Path) -> None:
    text = json.dumps({"is_causal": False, "architectures": ["Qwen3Model"]})
    assert settings_of(ModelSettings, {}, {"CENOTE_HF_OVERRIDES": text}).settings.hf_overrides == json.loads(text)
    folder = shutil.copytree(tiny("qwen3", head="causal_lm"), tmp_path / "m")
    result = CliRunner().invoke(app, ["inspect", "--json", str(folder), "--hf-overrides", text], prog_name="cenote")
    found = json.loads(result.stdout)
    assert found["hf_overrides"]["value"] == {"architectures": ["Qwen3Model"], "is_causal": False}
    assert found["architecture"] == {"value": "Qwen3Model", "source": "hf_overrides: architectures"}
    assert found["causal"] == {"value": False, "source": "hf_overrides: is_causal"}
