"""What a user decides about reading a checkpoint, against the reference with the same in its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cenote import LLM, PoolerConfig
from cenote.checkpoint import open_checkpoint
from cenote.config import ModelSettings
from cenote.errors import ConfigError, UnsupportedTask
from cenote.recipe import Recipe, resolve
from cenote.types import FloatArray
from support.classifiers import changed
from support.fixtures import Tiny, TinySentence
from support.references import EXACT, reference_vectors
from support.rows import assert_equal
from support.sentence_folders import POOLING_MODES, Dense
from support.texts import short_texts

from .conftest import Cenote

TEXTS = [*short_texts(6), "", "a"]
NAMES = dict(zip(POOLING_MODES, ("CLS", "MAX", "MEAN", "MEAN_SQRT_LEN", "WEIGHTEDMEAN", "LAST"), strict=True))


def recipe(folder: Path, **settings: Any) -> Recipe:
    return resolve(open_checkpoint(str(folder)), ModelSettings(**settings))


def vectors(folder: Path, **asked: Any) -> FloatArray:
    with LLM(str(folder), pooler_config=asked) as llm:
        return llm.embed(TEXTS, output="numpy", use_tqdm=False)


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_the_user_s_pooling_wins_and_the_other_modules_stay(tiny_sentence: TinySentence, mode: str) -> None:
    after: dict[str, Any] = {"dense": Dense(), "normalize": True}
    written = tiny_sentence(pooling="max" if mode == "mean" else "mean", **after)
    reference = reference_vectors(tiny_sentence(pooling=mode, **after), TEXTS)
    assert_equal(vectors(written, seq_pooling_type=NAMES[mode]), reference)
    assert_equal(vectors(written, pooling_type=NAMES[mode].lower()), reference)


def test_the_user_decides_whether_vectors_are_normalised(tiny_sentence: TinySentence) -> None:
    with_it, without = tiny_sentence(normalize=True), tiny_sentence(normalize=False)
    assert_equal(vectors(with_it, use_activation=False), reference_vectors(without, TEXTS))
    assert_equal(vectors(without, use_activation=True), reference_vectors(with_it, TEXTS))


@pytest.mark.parametrize(("family", "pooling"), [("bert", "MEAN"), ("roberta", "LAST"), ("qwen3", "CLS")])
def test_a_classifier_reads_the_row_that_the_user_names(tiny: Tiny, family: str, pooling: str) -> None:
    folder = tiny(family, head="sequence_classification", num_labels=3)
    model = AutoModelForSequenceClassification.from_pretrained(folder, **EXACT).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = []
    for text in TEXTS[:6]:
        with torch.inference_mode():
            hidden_TD = model.base_model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            row_1D = {"MEAN": hidden_TD.mean(0), "LAST": hidden_TD[-1], "CLS": hidden_TD[0]}[pooling][None]
            if family == "bert":
                logits_1L = model.classifier(torch.tanh(model.bert.pooler.dense(row_1D)))
            else:
                # Roberta's head takes the first of the tokens that it is given.
                logits_1L = model.classifier(row_1D[None]) if family == "roberta" else model.score(row_1D)
        expected.append(logits_1L[0].numpy())
    with LLM(str(folder), pooler_config={"seq_pooling_type": pooling}) as llm:
        outs = llm.classify(TEXTS[:6], use_activation=False, use_tqdm=False)
    assert_equal([out.outputs.probs for out in outs], expected)


def test_each_value_names_its_source(tiny_sentence: TinySentence, tiny: Tiny) -> None:
    folder = tiny_sentence(pooling="cls", normalize=True)
    assert {name: recipe(folder).sources[name] for name in ("pooling", "normalize")} == {
        "pooling": "modules.json",
        "normalize": "modules.json",
    }
    found = recipe(folder, pooler_config=PoolerConfig(seq_pooling_type="LAST"))
    assert (found.sources["pooling"], found.sources["normalize"]) == ("user", "modules.json")
    assert recipe(tiny("bert")).sources["pooling"] == "default: no modules.json"
    classifier = tiny("bert", head="sequence_classification")
    assert recipe(classifier).sources["pooling"] == "the architecture"
    assert recipe(classifier, pooler_config=PoolerConfig(pooling_type="MEAN")).sources["pooling"] == "user"


def test_the_log_says_once_how_a_checkpoint_is_read(tiny_sentence: TinySentence, caplog: Any) -> None:
    caplog.set_level("INFO", "cenote")
    recipe(tiny_sentence(pooling="cls"), pooler_config=PoolerConfig(task="token_embed", use_activation=True))
    for part in ("default_task token_embed (user)", "pooling cls (modules.json)", "normalize True (user)"):
        assert caplog.text.count(part) == 1


@pytest.mark.parametrize(
    ("head", "asked", "task"),
    [
        (None, "token_embed", "token_embed"),
        (None, "embedding", "embed"),
        (None, "score", "embed"),
        (None, "encode", "token_embed"),
        (1, "score", "classify"),
        (3, "reward", "token_classify"),
        (3, "embedding", "classify"),
    ],
)
def test_the_default_task_is_the_user_s_by_its_new_or_old_name(
    tiny: Tiny, head: int | None, asked: str, task: str
) -> None:
    more: dict[str, Any] = {} if head is None else {"head": "sequence_classification", "num_labels": head}
    folder = tiny("bert", **more)
    if asked == task:
        assert recipe(folder, pooler_config=PoolerConfig(task=asked)).default_task == task
        return
    with pytest.warns(DeprecationWarning, match=f"task={asked} is an old name"):
        found = recipe(folder, pooler_config=PoolerConfig(task=asked))
    assert (found.default_task, found.sources["default_task"]) == (task, "user")
    assert found.tasks == recipe(folder).tasks


@pytest.mark.parametrize(
    ("head", "asked", "message"),
    [
        (None, {"task": "classify"}, r"Unsupported task: 'classify' Supported tasks: \('embed', 'token_embed'\)"),
        (None, {"task": "dream"}, r"Unsupported task: 'dream' Supported tasks:"),
        (None, {"logit_mean": 1.0}, "logit_mean is given, but .* is an embedder"),
        (None, {"dimensions": 4}, "does not support Matryoshka embeddings"),
        (None, {"max_embed_len": 71}, r"max_embed_len \(71\) is greater than max_model_len \(70\)"),
        (None, {"step_tag_id": 3}, "step_tag_id is given without STEP pooling"),
        ("sequence_classification", {"dimensions": 4}, "dimensions is given, but .* is a classifier"),
        ("token_classification", {"seq_pooling_type": "CLS"}, "is a classifier of tokens"),
    ],
)
def test_what_would_change_nothing_or_cannot_be_stops_the_start(
    tiny: Tiny, head: str | None, asked: dict[str, Any], message: str
) -> None:
    folder = tiny("bert", **({} if head is None else {"head": head}))
    with pytest.raises((ConfigError, UnsupportedTask), match=message):
        LLM(str(folder), pooler_config=asked)


def test_another_pooling_must_fit_the_modules_behind_it(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling=["cls", "mean"], dense=Dense())
    with pytest.raises(ConfigError, match=r"takes 120 values, but gets 60. Leave out seq_pooling_type"):
        recipe(folder, pooler_config=PoolerConfig(seq_pooling_type="CLS"))


def test_sizes_are_the_user_s_or_the_checkpoint_s(
    tiny_sentence: TinySentence, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = tiny_sentence(normalize=True)
    declared = changed(plain, tmp_path / "m", matryoshka_dimensions=[8, 16])
    assert vectors(declared, dimensions=16).shape == (len(TEXTS), 16)
    assert_equal(vectors(declared, dimensions=16), reference_vectors(plain, TEXTS, truncate_dim=16, **UNIT))
    with pytest.raises(ConfigError, match=r"only supports Matryoshka dimensions \[8, 16\], got 9"):
        recipe(declared, pooler_config=PoolerConfig(dimensions=9))
    with pytest.raises(ConfigError, match=r"only supports dimensions in range \[1, 60\], got 61"):
        recipe(declared, pooler_config=PoolerConfig(dimensions=61))
    assert recipe(declared, pooler_config=PoolerConfig(dimensions=9), allow_any_dimensions=True).dimensions == 9
    assert caplog.text == ""
    found = recipe(plain, allow_any_dimensions=True)
    assert (found.matryoshka_dims, found.sources["matryoshka_dims"]) == (None, "user: allow_any_dimensions")
    assert "declares no Matryoshka sizes" in caplog.text


UNIT = {"normalize_embeddings": True}


def test_json_flags_and_the_environment_are_one_setting(cenote: Cenote, tiny_sentence: TinySentence) -> None:
    folder = str(tiny_sentence(pooling="cls", normalize=True))

    def read(*arguments: str, **env: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(cenote("inspect", "--json", folder, *arguments, **env).stdout)
        return {name: found[name]["value"] for name in ("default_task", "pooling", "normalize")}

    assert read() == {"default_task": "embed", "pooling": "cls", "normalize": True}
    wanted = {"default_task": "token_embed", "pooling": "mean", "normalize": False}
    whole = '{"task": "token_embed", "pooling_type": "MEAN", "use_activation": false}'
    assert read("--pooler-config", whole) == wanted
    assert read("--pooler_config", whole) == wanted
    assert read(CENOTE_POOLER_CONFIG=whole) == wanted
    dotted = ("--pooler-config.task=token_embed", "--pooler-config.seq_pooling_type", "mean")
    assert read(*dotted, "--pooler-config.use-activation", "false") == wanted
    assert read("--pooler-config.seq-pooling-type=LAST", CENOTE_POOLER_CONFIG='{"task": "token_embed"}') == {
        **wanted,
        "pooling": "last",
        "normalize": True,
    }
    with pytest.warns(DeprecationWarning, match="override_pooler_config is an old name, say pooler_config"):
        assert read("--override-pooler-config", whole) == wanted
    said = cenote("inspect", folder, "--pooler-config", '{"normalise": true}', expect=2).stderr
    assert "pooler_config has no field 'normalise'. Its fields are task," in said
    assert "It is a JSON object." in cenote("inspect", folder, "--pooler-config", "{task", expect=2).stderr


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"pooling_type": "MEAN", "seq_pooling_type": "CLS"}, "Cannot set both `pooling_type` and `seq_pooling_type`"),
        ({"pooling_type": "STEP", "tok_pooling_type": "ALL"}, "Cannot set both `pooling_type` and `tok_pooling_type`"),
        ({"normalize": True}, "Parameter `normalize` was removed; use `use_activation` instead."),
        ({"softmax": True}, "Parameter `softmax` was removed; use `use_activation` instead."),
        ({"activation": False}, "Parameter `activation` was removed; use `use_activation` instead."),
        ({"logit_bias": 1.0}, "Parameter `logit_bias` was removed; use `logit_mean` and `logit_sigma` instead."),
        ({"logit_sigma": 0}, r"logit_sigma cannot be 0 \(division by zero\)"),
        ({"seq_pooling_type": "ALL"}, "Allowed are CLS, LAST, MEAN, MAX, MEAN_SQRT_LEN, WEIGHTEDMEAN"),
        ({"dimensions": 0}, "dimensions=0. It is at least 1."),
        ({"dimensions": "8"}, "dimensions='8' is of type str. It takes int."),
        ({"returned_token_ids": ["yes"]}, "returned_token_ids holds 'yes'. It holds int alone."),
    ],
)
def test_a_config_that_cannot_be_is_refused_alike_as_an_object_and_a_dict(
    tiny: Tiny, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PoolerConfig(**asked)
    with pytest.raises(ConfigError, match=message):
        LLM(str(tiny("bert")), pooler_config=asked)


def test_an_object_and_a_dict_are_one(tiny: Tiny) -> None:
    asked: dict[str, Any] = {"task": "token_embed", "pooling_type": "mean", "use_activation": False}
    with LLM(str(tiny("bert")), pooler_config=PoolerConfig(**asked)) as llm:
        assert llm.recipe == recipe(tiny("bert"), pooler_config=PoolerConfig(**asked))
        assert llm.recipe.pooling is not None
        assert (llm.recipe.default_task, llm.recipe.pooling.modes) == ("token_embed", ("mean",))
        rows = llm.embed(TEXTS, output="numpy", use_tqdm=False)
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).min() > 1e-3
