"""What is special about language models: config keys old and new, direction, limits, conversion, heads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from cenote import LLM, models
from cenote.checkpoint import open_checkpoint
from cenote.config import ModelSettings
from cenote.errors import CheckpointError, ConfigError, WeightMismatch
from cenote.models import llama
from cenote.recipe import resolve
from cenote.steps import Pooling
from support.classifiers import Reference, changed
from support.decoders import DECODERS
from support.fixtures import Tiny, TinySentence
from support.forwards import backbone, recipe_of
from support.parity import REFERENCE_LIMIT
from support.references import ragged_ids, reference_vectors, worst_error
from support.saving import Saved, read_json
from support.texts import paragraphs, short_texts

TEXTS = [*short_texts(6), "", paragraphs(1)[0][:150]]
CUT = {"truncate_prompt_tokens": -1}


def config_of(folder: Path, **values: Any) -> Any:
    raw = {**read_json(folder / "config.json"), **values}
    return models.find(raw).Config.from_hf(raw)


@pytest.mark.parametrize("model_type", DECODERS)
def test_a_causal_language_model_is_its_base_without_the_head(tiny: Tiny, model_type: str) -> None:
    inputs = ragged_ids(tiny(model_type), (3, 17))
    base = backbone(tiny(model_type)).forward(inputs)
    for tied in (True, False):
        folder = tiny(model_type, head="causal_lm", tie_word_embeddings=tied)
        stored = load_file(folder / "model.safetensors")
        assert any(name.startswith(("lm_head", "output")) for name in stored) != tied
        for ours, theirs in zip(backbone(folder).forward(inputs), base, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "style",
    [Saved(prefix="add"), Saved(format="sharded", prefix="add"), Saved(format="bin"), Saved(format="sharded_bin")],
    ids=str,
)
@pytest.mark.parametrize("model_type", DECODERS)
def test_how_weights_lie_changes_nothing(tiny: Tiny, model_type: str, style: Saved) -> None:
    inputs = ragged_ids(tiny(model_type), (3, 17))
    plain = backbone(tiny(model_type)).forward(inputs)
    for ours, theirs in zip(backbone(tiny(model_type, saved=style)).forward(inputs), plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "internlm2", "llama_bidirec"])
def test_half_of_a_tied_language_model_in_shards_is_half_of_its_base(tiny: Tiny, model_type: str, dtype: str) -> None:
    inputs = ragged_ids(tiny(model_type), (3, 17))
    base = backbone(tiny(model_type, dtype=dtype), dtype).forward(inputs)
    head = {} if model_type == "llama_bidirec" else {"head": "causal_lm", "tie_word_embeddings": True}
    folder = tiny(model_type, dtype=dtype, saved=Saved(format="sharded"), **head)
    assert recipe_of(folder, "auto").stored_dtype == dtype
    for ours, theirs in zip(backbone(folder, dtype).forward(inputs), base, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "internlm2"])
def test_a_tied_head_may_be_stored_all_the_same(tiny: Tiny, tmp_path: Path, model_type: str) -> None:
    source = tiny(model_type, head="causal_lm", tie_word_embeddings=True)
    folder = Path(shutil.copytree(source, tmp_path / "m"))
    state = load_file(folder / "model.safetensors")
    (table,) = (name for name in state if name.endswith(("embed_tokens.weight", "tok_embeddings.weight")))
    head = "output.weight" if model_type == "internlm2" else "lm_head.weight"
    (folder / "model.safetensors").unlink()
    torch.save({**state, head: state[table]}, folder / "pytorch_model.bin")
    inputs = ragged_ids(source, (3, 17))
    np.testing.assert_array_equal(backbone(folder).forward(inputs)[1], backbone(source).forward(inputs)[1])


def test_stored_frequencies_of_old_files_are_dropped(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("llama"), tmp_path / "old"))
    path = folder / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in load_file(path).items()}
    path.unlink()
    save_file({**state, "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(5)}, path, metadata={"format": "pt"})
    inputs = ragged_ids(folder, (9,))
    np.testing.assert_array_equal(backbone(folder).forward(inputs)[0], backbone(tiny("llama")).forward(inputs)[0])


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma3_text"])
@pytest.mark.parametrize("pooling", ["lasttoken", "mean"])
def test_sentence_transformers_folders(tiny_sentence: TinySentence, model_type: str, pooling: str) -> None:
    folder = tiny_sentence(model_type=model_type, pooling=pooling, normalize=True, prompts={"query": "Query: "})
    with LLM(str(folder)) as llm:
        asked: tuple[dict[str, Any], ...] = ({}, {"prompt_name": "query"})
        for more in asked:
            outs = llm.embed(TEXTS, use_tqdm=False, tokenization_kwargs=CUT, **more)
            ours = [out.outputs.embedding for out in outs]
            theirs = reference_vectors(folder, TEXTS, **more)
            assert max(worst_error(a, b) for a, b in zip(ours, theirs, strict=True)) <= REFERENCE_LIMIT


def test_without_modules_the_last_token_is_pooled_and_normalised(
    tiny: Tiny, tiny_sentence: TinySentence, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cenote")
    folder = tiny("qwen3", head="causal_lm")
    theirs = reference_vectors(tiny_sentence(model_type="qwen3", pooling="lasttoken", normalize=True), TEXTS)
    with LLM(str(folder), convert="embed", runner="pooling") as llm:
        assert (llm.recipe.steps, llm.recipe.normalize) == ((Pooling(("last",)),), True)
        assert llm.recipe.sources["steps"] == "default: no modules.json"
        outs = llm.embed(TEXTS, use_tqdm=False, tokenization_kwargs=CUT)
        assert max(worst_error(o.outputs.embedding, t) for o, t in zip(outs, theirs, strict=True)) <= REFERENCE_LIMIT
    assert caplog.text.count("its last token is pooled (last) and normalised") == 1


def test_a_score_with_a_stored_bias_adds_it(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny("qwen2", head="sequence_classification", num_labels=3)
    folder = Path(shutil.copytree(source, tmp_path / "biased"))
    path = folder / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in load_file(path).items()}
    path.unlink()
    bias = torch.tensor([0.5, -1.0, 2.0])
    save_file({**state, "score.bias": bias}, path, metadata={"format": "pt"})
    expected = np.stack([Reference(source).logits(text) for text in TEXTS]) + bias.numpy()
    with LLM(str(folder)) as llm:
        outs = llm.classify(TEXTS, use_activation=False, use_tqdm=False, tokenization_kwargs=CUT)
        assert worst_error([out.outputs.probs for out in outs], expected) <= REFERENCE_LIMIT
        assert llm.recipe.classifier is not None
        assert (llm.recipe.classifier.pooling, llm.recipe.sources["pooling"]) == ("last", "the architecture")


def test_a_classifier_of_tokens_without_its_bias_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("qwen2", head="token_classification"), tmp_path / "m"))
    path = folder / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in load_file(path).items() if name != "score.bias"}
    path.unlink()
    save_file(state, path, metadata={"format": "pt"})
    with pytest.raises(WeightMismatch, match=r"score lacks \['bias'\]"):
        LLM(str(folder))


@pytest.mark.parametrize(
    ("model_type", "says", "causal", "source"),
    [
        ("llama", {}, True, "the architecture"),
        ("qwen2", {"is_causal": False}, False, "config.json: is_causal"),
        ("qwen3", {"is_causal": True}, True, "config.json: is_causal"),
        ("gemma3_text", {"use_bidirectional_attention": True}, False, "config.json: use_bidirectional_attention"),
        ("gemma", {"use_bidirectional_attention": True}, False, "config.json: use_bidirectional_attention"),
        ("bert", {}, False, "the architecture"),
    ],
)
def test_causal_or_not_has_a_source(
    tiny: Tiny, tmp_path: Path, model_type: str, says: dict[str, Any], causal: bool, source: str
) -> None:
    found = recipe_of(changed(tiny(model_type), tmp_path / "m", **says))
    assert (found.causal, found.sources["causal"]) == (causal, source)


OLD_KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "theta": ("llama", {"rope_theta": 500.0}),
    "linear": ("llama", {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "dynamic": ("mistral", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "dynamic of internlm2": ("internlm2", {"rope_theta": 1e6, "rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "yarn": (
        "qwen2",
        {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 17}},
    ),
    "llama3": (
        "llama",
        {
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            "rope_theta": 3000.0,
            "rope_local_base_freq": 70.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    "longrope": (
        "phi3",
        {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.5, 2.0, 2.5, 3],
                "long_factor": [2, 3, 4, 5, 6.5],
            },
            "original_max_position_embeddings": 20,
        },
    ),
    "part": ("phi3", {"partial_rotary_factor": 0.6, "rope_theta": 250.0}),
}


@pytest.mark.parametrize("name", OLD_KEYS)
def test_old_keys_say_what_the_new_ones_say(tiny: Tiny, name: str) -> None:
    model_type, says = OLD_KEYS[name]
    raw = {key: value for key, value in read_json(tiny(model_type) / "config.json").items() if "rope" not in key}
    old = {key: value for key, value in raw.items() if key != "original_max_position_embeddings"} | says
    new = AutoConfig.for_model(**{**old, "model_type": model_type}).to_dict()
    assert not set(new) & {"rope_scaling", "rope_theta", "rope_local_base_freq"}
    architecture = models.find(old)
    assert architecture.Config.from_hf(old) == architecture.Config.from_hf(new)
    assert architecture.Config.from_hf(old) != architecture.Config.from_hf(raw)


WINDOWED: dict[str, dict[str, Any]] = {
    "qwen2": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2},
    "gemma2": {"num_hidden_layers": 5},
    "gemma3_text": {"num_hidden_layers": 5, "sliding_window_pattern": 3},
}


@pytest.mark.parametrize("model_type", WINDOWED)
def test_older_files_do_not_list_the_kinds_of_their_layers(tiny: Tiny, model_type: str) -> None:
    raw = read_json(tiny(model_type) / "config.json") | WINDOWED[model_type]
    old = {key: value for key, value in raw.items() if key != "layer_types"}
    new = AutoConfig.for_model(**{**old, "model_type": model_type}).to_dict()
    assert len(set(new["layer_types"])) == 2
    found = models.find(old).Config.from_hf(old)
    assert isinstance(found, llama.Config)
    assert found == models.find(new).Config.from_hf(new)
    assert [window is not None for window in found.shape.windows] == [
        kind == "sliding_attention" for kind in new["layer_types"]
    ]


OPTIONAL = (
    *("hidden_act", "hidden_activation", "rms_norm_eps", "num_key_value_heads", "head_dim", "attention_bias"),
    *("mlp_bias", "rope_parameters", "original_max_position_embeddings", "query_pre_attn_scalar", "pretraining_tp"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "_sliding_window_pattern"),
    *("attn_logit_softcapping", "use_bidirectional_attention", "bias"),
)


@pytest.mark.parametrize("name", ["su", "yarn"])
def test_the_scaling_of_phi3_has_older_names(tiny: Tiny, name: str) -> None:
    says = {"short_factor": [1.0] * 5, "long_factor": [2.0] * 5}
    old, new = (config_of(tiny("phi3"), rope_scaling={"type": kind, **says}) for kind in (name, "longrope"))
    assert old == new != config_of(tiny("phi3"))


@pytest.mark.parametrize("model_type", DECODERS)
def test_defaults_are_those_of_the_reference(tiny: Tiny, model_type: str) -> None:
    values = {"num_attention_heads": 64, "hidden_size": 128, "max_position_embeddings": 9000, "num_hidden_layers": 8}
    raw = read_json(tiny(model_type) / "config.json") | values
    bare = {name: value for name, value in raw.items() if name not in OPTIONAL}
    full = AutoConfig.for_model(**{**bare, "model_type": model_type}).to_dict()
    architecture = models.find(raw)
    assert architecture.Config.from_hf(bare) == architecture.Config.from_hf(full)


@pytest.mark.parametrize(
    ("rope", "limit"),
    [
        ({}, 70),
        ({"rope_type": "linear", "factor": 4.0}, 280),
        ({"rope_type": "dynamic", "factor": 2.0}, 140),
        ({"rope_type": "yarn", "factor": 4.0}, 70),
        ({"rope_type": "longrope", "short_factor": [1.0] * 5, "long_factor": [2.0] * 5, "factor": 4.0}, 70),
        ({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, 70),
    ],
)
def test_the_longest_text(tiny: Tiny, rope: dict[str, Any], limit: int) -> None:
    assert config_of(tiny("llama"), rope_parameters=rope).position_limit == limit


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a scaling": ("llama", {"rope_parameters": {"rope_type": "proportional"}}, "rope_type='proportional'"),
    "a scaling of old": ("qwen2", {"rope_scaling": {"type": "mrope"}}, "rope_type='mrope'"),
    "a base of 0": ("llama", {"rope_parameters": {"rope_theta": 0}}, "rope_theta=0"),
    "no factor": ("llama", {"rope_parameters": {"rope_type": "linear"}}, "no 'factor'"),
    "a factor of 0": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 0}}, "factor=0"),
    "divisors": (
        "llama",
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        r"short_factor=\[1.0\]",
    ),
    "part of a head": ("qwen2", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    "an odd head": ("llama", {"head_dim": 11}, "turn 11 dimensions"),
    "flat positions": ("gemma3_text", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters"),
    "groups": ("llama", {"num_key_value_heads": 4}, "num_key_value_heads=4"),
    "a window of 0": ("mistral", {"sliding_window": 0}, "sliding_window=0"),
    "a kind of layer": ("qwen2", {"layer_types": ["chunked_attention"] * 3}, "chunked_attention"),
    "a window that is not there": ("qwen3", {"layer_types": ["sliding_attention"] * 3}, "layer_types"),
    "layers that are not there": ("qwen3", {"layer_types": ["full_attention"] * 2}, "layer_types"),
    "a soft cap": ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    "split products": ("llama", {"pretraining_tp": 2}, "pretraining_tp=2"),
    "quantised": ("phi3", {"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_a_config_says_and_we_do_not_do_stops_the_start(tiny: Tiny, refused: str) -> None:
    model_type, says, message = REFUSED[refused]
    with pytest.raises(CheckpointError, match=message):
        config_of(tiny(model_type), **says)


def test_a_family_that_overflows_is_never_run_in_float16(tiny: Tiny) -> None:
    folder = tiny("gemma2", dtype="float16")
    for asked in ("float16", "half"):
        with pytest.raises(ConfigError, match=r"overflow in float16.*bfloat16"):
            resolve(open_checkpoint(str(folder)), ModelSettings(dtype=asked))
    found = resolve(open_checkpoint(str(folder)), ModelSettings())
    assert (found.dtype, found.stored_dtype) == ("float32", "float16")
    assert "overflow" in found.sources["dtype"]
    assert resolve(open_checkpoint(str(folder)), ModelSettings(dtype="bfloat16")).dtype == "bfloat16"
    assert resolve(open_checkpoint(str(tiny("llama", dtype="float16"))), ModelSettings()).dtype == "auto"


def test_the_scale_of_the_embeddings_has_the_precision_of_the_table(tiny: Tiny) -> None:
    for dtype, scale in (("float32", 60**0.5), ("bfloat16", 7.75)):
        model = backbone(tiny("gemma"), dtype).model
        assert isinstance(model, llama.Model)
        assert model._scale == pytest.approx(scale, rel=1e-7)
