"""Models that `transformers` runs: equal to it alone and in any batch, strict about weights, and no code unasked."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from cenote import LLM, Pair
from cenote.checkpoint import open_checkpoint
from cenote.config import ModelSettings, PoolerConfig
from cenote.device import plan
from cenote.errors import (
    CheckpointError,
    ConfigError,
    MissingExtra,
    UnknownArchitecture,
    UnsupportedTask,
    WeightMismatch,
)
from cenote.recipe import Recipe, resolve
from cenote.runner import load_model
from support.classifiers import Reference, changed
from support.fixtures import Tiny, TinySentence
from support.foreign import FOREIGN, foreign, reference_states
from support.forwards import CPU, Backbone
from support.late_folders import multi_vector
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT, worst_of
from support.references import worst_error
from support.texts import short_texts

Make = Callable[..., Path]
TEXTS = [*short_texts(5), "", "fox", "a fox", "a cat"]
# Some of equal length, which run at once.
LENGTHS = (1, 2, 3, 9, 9, 9, 16, 40)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[str, Path] = {}

    def once(model_type: str, **arguments: Any) -> Path:
        key = f"{model_type}{sorted(arguments.items())}"
        if key not in made:
            made[key] = foreign(model_type, tmp_path_factory.mktemp("foreign"), **arguments)
        return made[key]

    return once


def decided(folder: Path, **settings: Any) -> Recipe:
    return resolve(open_checkpoint(str(folder)), ModelSettings(model=str(folder), **settings))


def loaded(folder: Path, **settings: Any) -> Backbone:
    recipe = decided(folder, **settings)
    return Backbone(recipe, load_model(recipe, plan(CPU, recipe.dtype, recipe.stored_dtype))[0])


def llm(folder: Path, **settings: Any) -> LLM:
    return LLM(model=str(folder), num_workers=1, threads_per_worker=1, **settings)


@pytest.fixture(scope="module", params=FOREIGN)
def family(request: pytest.FixtureRequest, make: Make) -> tuple[str, Path]:
    return request.param, make(request.param)


def test_hidden_states_equal_the_reference_in_any_batch(family: tuple[str, Path]) -> None:
    model_type, folder = family
    ours = loaded(folder)
    source = np.random.default_rng(5)
    limit = decided(folder).max_len
    # No paddings and no ends among the ids: RoBERTa counts positions by the first.
    # A Funnel takes no text of one token or two.
    lengths = LENGTHS[2 if model_type == "funnel" else 0 :]
    inputs = [(source.integers(5, ours.recipe.model.vocab_size, n).tolist(), None) for n in (*lengths, limit)]
    given = [{"input_ids": torch.tensor([ids])} for ids, _ in inputs]
    if model_type in ("xlnet", "funnel"):
        given = [{**one, "token_type_ids": torch.zeros_like(one["input_ids"])} for one in given]
    reference = reference_states(folder, given)
    together = ours.forward(inputs)
    assert worst_of(together, [layers[-1] for layers in reference]) <= REFERENCE_LIMIT
    assert worst_of(together, [ours.forward([one])[0] for one in inputs]) <= BATCH_LIMIT
    (first, last) = ours.forward(inputs[-2:], ["first", "last"])
    (whole, other) = ours.forward(inputs[-2:])
    np.testing.assert_array_equal(np.concatenate([first, last]), np.stack([whole[0], other[-1]]))
    if model_type != "funnel":
        numbers = range(len(reference[0]))
        for number, states in zip(numbers, ours.layers(inputs, numbers), strict=True):
            assert worst_of(states, [layers[number] for layers in reference]) <= REFERENCE_LIMIT


def test_texts_are_pooled_by_the_nature_of_the_family(
    family: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    model_type, folder = family
    words: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoded = [dict(words([text], return_tensors="pt")) for text in TEXTS if text]
    with caplog.at_level(logging.INFO), llm(folder) as model:
        ours = model.embed([text for text in TEXTS if text], output="numpy")
        recipe = model.recipe
    assert f"is run by transformers (default: Cenote has no file for model_type='{model_type}')" in caplog.text
    assert recipe.model_impl == "transformers"
    assert recipe.causal == FOREIGN[model_type].causal
    place = -1 if FOREIGN[model_type].last else 0
    rows = [layers[-1][place] for layers in reference_states(folder, [_without_mask(one) for one in encoded])]
    for mine, theirs in zip(ours, rows, strict=True):
        assert worst_error(mine, theirs / np.linalg.norm(theirs)) <= REFERENCE_LIMIT


def _without_mask(encoded: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in encoded.items() if name != "attention_mask"}


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        *(("xlnet", {}), ("funnel", {}), ("gpt2", {}), ("gpt2", {"pad_token_id": None}), ("bart", {})),
        *(("ernie", {}), ("eurobert", {}), ("opt", {}), ("mixtral", {}), ("exaone4", {})),
    ],
    ids=str,
)
def test_classes_are_those_of_the_reference(make: Make, model_type: str, values: dict[str, Any]) -> None:
    folder = make(model_type, head="sequence_classification", num_labels=3, **values)
    reference = Reference(folder)
    texts = [text for text in TEXTS if text]
    with llm(folder) as model:
        assert model.recipe.tasks == ("classify",)
        found = model.classify(texts, use_activation=False)
    for text, one in zip(texts, found, strict=True):
        assert worst_error(one.outputs.probs, reference.logits(text)) <= REFERENCE_LIMIT


def test_a_reward_model_of_jamba_gives_its_values_as_they_are(make: Make) -> None:
    folder = make("jamba", head="sequence_classification", num_labels=1)
    reference = Reference(folder)
    expected = np.stack([reference.logits(text) for text in TEXTS[:4]])
    with llm(folder) as model:
        assert model.recipe.decided()["use_activation"] == (False, "the architecture")
        found = [one.outputs.probs for one in model.classify(TEXTS[:4])]
        shown = [one.outputs.probs for one in model.classify(TEXTS[:4], use_activation=True)]
    assert worst_error(found, expected) <= REFERENCE_LIMIT
    assert worst_error(shown, torch.from_numpy(expected).sigmoid().numpy()) <= REFERENCE_LIMIT


@pytest.mark.parametrize("model_type", ["xlnet", "gpt2", "eurobert"])
def test_classes_of_tokens_are_those_of_the_reference(make: Make, model_type: str) -> None:
    folder = make(model_type, head="token_classification", num_labels=3)
    reference = Reference(folder, tokens=True)
    with llm(folder) as model:
        assert model.recipe.tasks == ("token_classify",)
        found = model.encode(TEXTS[:5], pooling_task="token_classify", use_activation=False)
    for text, one in zip(TEXTS[:5], found, strict=True):
        assert worst_error(one.outputs.data, reference.logits(text)) <= REFERENCE_LIMIT


def test_pairs_are_scored_with_their_segments(make: Make) -> None:
    folder = make("xlnet", head="sequence_classification", num_labels=1)
    reference = Reference(folder)
    documents = ["a red fox", "the cat sleeps here", "a red cat"]
    with llm(folder) as model:
        scores = [one.outputs.score for one in model.score("which fox?", documents, use_activation=False)]
        with pytest.raises(UnsupportedTask):
            model.encode(documents, pooling_task="token_classify")
    expected = [reference.logits(Pair("which fox?", document)) for document in documents]
    assert worst_error(np.array(scores)[:, None], np.stack(expected)) <= REFERENCE_LIMIT


@pytest.mark.parametrize("head", ["base", "sequence_classification", "masked_lm"])
def test_a_family_of_ours_gives_the_same_rows_through_both(tiny: Tiny, head: str) -> None:
    folder = tiny("bert", head=head)
    pair = Pair("a fox", "is red")
    task = "embed" if head != "sequence_classification" else "classify"
    with llm(folder) as own, llm(folder, model_impl="transformers") as theirs:
        assert (own.recipe.model_impl, theirs.recipe.model_impl) == ("cenote", "transformers")
        for text in (TEXTS[0], pair):
            rows = [one.encode([text], pooling_task=task)[0].outputs.data for one in (own, theirs)]
            assert worst_error(*rows) <= REFERENCE_LIMIT


def test_modules_and_unattended_tokens_are_those_of_our_own(tmp_path: Path, tiny_sentence: TinySentence) -> None:
    late = multi_vector(
        tmp_path / "late",
        transformer={"query_expansion": {"strategy": "fixed", "attend": False, "length": 14}, "document_length": 20},
        prompts={"query": "[Q] ", "document": "[D] "},
    )
    with llm(late) as own, llm(late, model_impl="transformers") as theirs:
        rows = [model.encode(["which fox?"], pooling_task="token_embed", input_type="query") for model in (own, theirs)]
        assert worst_error(*(one[0].outputs.data for one in rows)) <= REFERENCE_LIMIT
    pooled = tiny_sentence(pooling="mean")
    with llm(pooled) as own, llm(pooled, model_impl="transformers") as theirs:
        assert worst_error(*(model.embed(TEXTS, output="numpy") for model in (theirs, own))) <= REFERENCE_LIMIT


def test_only_our_own_files_where_the_user_says_so(make: Make) -> None:
    with pytest.raises(UnknownArchitecture, match="'gpt2'"):
        decided(make("gpt2"), model_impl="cenote")


@pytest.mark.parametrize(
    ("model_type", "head", "dropped"),
    [("xlnet", "causal_lm", "lm_loss"), ("gpt2", "causal_lm", "lm_head"), ("bart", "seq2seq", "decoder")],
)
def test_heads_of_the_named_class_are_left_out(make: Make, model_type: str, head: str, dropped: str) -> None:
    base, whole = loaded(make(model_type)), loaded(make(model_type, head=head))
    inputs = [([7, 8, 9], None), ([20, 11, 6, 5], None)]
    assert worst_of(whole.forward(inputs), base.forward(inputs)) <= BATCH_LIMIT


@pytest.mark.parametrize("change", ["lacks", "has no use for", "another shape"])
def test_weights_that_do_not_fit_stop_the_start(make: Make, tmp_path: Path, change: str) -> None:
    folder = Path(shutil.copytree(make("gpt2"), tmp_path / "broken"))
    state = load_file(folder / "model.safetensors")
    if change == "lacks":
        del state["h.1.mlp.c_fc.bias"]
    elif change == "has no use for":
        state["h.1.mlp.extra.bias"] = torch.zeros(3)
    else:
        state["ln_f.bias"] = torch.zeros(3)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    named = {"lacks": "lacks h.1.mlp.c_fc.bias", "has no use for": "has no use for h.1.mlp.extra.bias"}
    with pytest.raises(WeightMismatch, match=named.get(change, "cannot load the weights")):
        loaded(folder)


def test_what_cannot_be_is_refused(make: Make, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="quantization_config"):
        decided(changed(make("gpt2"), tmp_path / "quantised", quantization_config={"quant_method": "bnb"}))
    with pytest.raises(CheckpointError, match=r"transformers (can make no model|refuses)"):
        decided(changed(make("gpt2"), tmp_path / "heads", n_head=7))
    with pytest.raises(ConfigError, match="labels are tokens"):
        decided(tiny("qwen3", head="causal_lm"), model_impl="transformers",
                hf_overrides={"classifier_from_token": ["a"], "method": "no_post_processing"})  # fmt: skip
    with pytest.raises(ConfigError, match="gives its logits itself"):
        decided(
            make("gpt2", head="sequence_classification", num_labels=3),
            pooler_config=PoolerConfig(seq_pooling_type="MEAN"),
        )
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    with pytest.raises(ConfigError, match="Dynamic scaling"):
        loaded(tiny("llama", rope_parameters=dynamic), model_impl="transformers")
    with pytest.raises(ConfigError, match="quantization='int8'"):
        llm(make("gpt2"), quantization="int8")
    with pytest.raises(CheckpointError, match="no classifier of tokens"):
        decided(changed(make("bart"), tmp_path / "tokens", architectures=["BartForTokenClassification"]))


@pytest.mark.parametrize("named", ["JinaVLForRanking", "CLIPModel", "ColPaliForRetrieval", "LlamaNemotronVLModel"])
def test_models_of_images_and_sound_are_refused_by_name(make: Make, tmp_path: Path, named: str) -> None:
    folder = changed(make("gpt2"), tmp_path / "m", architectures=[named])
    with pytest.raises(UnknownArchitecture, match=rf"\['{named}'\], a model that reads images or sound"):
        decided(folder)


def test_a_missing_extra_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make("gpt2")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"model_type='gpt2'.*cenote\[transformers\]"):
        decided(folder)


_CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

class OwnConfig(PretrainedConfig):
    model_type = "own"
    def __init__(self, vocab_size=887, hidden_size=12, **kwargs):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        super().__init__(**kwargs)

class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()
    def get_input_embeddings(self):
        return self.words
    def forward(self, input_ids, return_dict=True):
        return BaseModelOutput(last_hidden_state=self.words(input_ids))
"""


def test_code_of_a_checkpoint_runs_only_when_trusted(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Code is copied to a cache and imported from there.
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "own"
    shutil.copytree(make("gpt2"), folder)
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\n{_CODE}", encoding="utf-8")
    table_VE = torch.randn(887, 12)
    save_file({"words.weight": table_VE}, folder / "model.safetensors", {"format": "pt"})
    auto_map = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    own = changed(folder, tmp_path / "changed", model_type="own", architectures=["OwnModel"], auto_map=auto_map,
                  hidden_size=12, vocab_size=887)  # fmt: skip
    with pytest.raises(ConfigError, match=r"own\.OwnConfig.*trust-remote-code"):
        decided(own)
    assert not ran.exists()
    (rows,) = loaded(own, trust_remote_code=True).forward([([3, 5], None)])
    assert ran.exists()
    np.testing.assert_array_equal(rows, table_VE[[3, 5]].numpy())
