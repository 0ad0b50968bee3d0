"""What is special about encoders with rotary positions: names and keys old and new, heads, experts, refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from cenote import LLM, models
from cenote.errors import CheckpointError, WeightMismatch
from cenote.models import gte, nomic_bert
from cenote.rope import Dynamic, Linear, Plain
from support.classifiers import Reference, changed
from support.fixtures import Tiny, TinySentence
from support.forwards import backbone
from support.nomic import as_makers, makers_config, with_experts
from support.parity import BATCH_LIMIT, HALF_COSINE, REFERENCE_LIMIT, cosine, worst_of
from support.references import ragged_ids, reference_vectors, worst_error
from support.rotary import ROTARY
from support.saving import Saved, read_json
from support.texts import paragraphs, short_texts

TEXTS = [*short_texts(6), "", paragraphs(1)[0]]
CUT = {"truncate_prompt_tokens": -1}


def config_of(folder: Path, **values: Any) -> Any:
    raw = {**read_json(folder / "config.json"), **values}
    return models.find(raw).Config.from_hf(raw)


def assert_same(folder: Path, other: Path) -> None:
    inputs = ragged_ids(other, (3, 17, 70))
    for ours, theirs in zip(backbone(folder).forward(inputs), backbone(other).forward(inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("style", [Saved(prefix="add"), Saved(format="sharded"), Saved(format="bin")], ids=str)
@pytest.mark.parametrize("model_type", [*ROTARY, "new"])
def test_how_weights_lie_changes_nothing(tiny: Tiny, model_type: str, style: Saved) -> None:
    assert_same(tiny(model_type, saved=style), tiny(model_type))


@pytest.mark.parametrize("model_type", ROTARY)
def test_a_masked_language_model_is_read_as_its_base(tiny: Tiny, model_type: str) -> None:
    assert_same(tiny(model_type, head="masked_lm"), tiny(model_type))


@pytest.mark.parametrize("model_type", ["nomic_bert", "gte"])
def test_names_inside_transformers_are_read_too(tiny: Tiny, tmp_path: Path, model_type: str) -> None:
    folder = Path(shutil.copytree(tiny(model_type), tmp_path / "m"))
    AutoModel.from_pretrained(folder).save_pretrained(folder, save_original_format=False)
    assert "layers.0.self_attn.q_proj.weight" in load_file(folder / "model.safetensors")
    assert_same(folder, tiny(model_type))


def test_layers_that_lie_whole_and_in_parts_stop_the_start(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("gte"), tmp_path / "m"))
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    part = {"layers.1.self_attn.k_proj.weight": torch.zeros(60, 60)}
    for twice in ({**state, **part}, {**part, **state}):
        # Safetensors would sort the names.
        torch.save(twice, folder / "pytorch_model.bin")
        with pytest.raises(WeightMismatch, match="1 stored twice"):
            backbone(folder)
    without = {name: tensor for name, tensor in state.items() if "1.attention.qkv_proj.weight" not in name}
    torch.save({**without, **part}, folder / "pytorch_model.bin")
    with pytest.raises(WeightMismatch, match=r"2 needed but not stored: \S+1\.qkv\.query\.weight, \S+value\.weight"):
        backbone(folder)


@pytest.mark.parametrize("model_type", ROTARY)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_sentence_transformers_folders(tiny_sentence: TinySentence, model_type: str, pooling: str) -> None:
    folder = tiny_sentence(model_type=model_type, pooling=pooling, normalize=True)
    with LLM(str(folder)) as llm:
        outs = llm.embed(TEXTS, use_tqdm=False, tokenization_kwargs=CUT)
        theirs = reference_vectors(folder, TEXTS)
        assert max(worst_error(a.outputs.embedding, b) for a, b in zip(outs, theirs, strict=True)) <= REFERENCE_LIMIT


HEADS: dict[str, dict[str, Any]] = {
    "mean": {"classifier_pooling": "mean"},
    "mean, biased": {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True},
    "another activation": {"classifier_activation": "silu"},
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_modernbert(tiny: Tiny, name: str) -> None:
    folder = tiny("modernbert", head="sequence_classification", num_labels=2, **HEADS[name])
    reference = Reference(folder)
    with LLM(str(folder)) as llm:
        assert llm.recipe.classifier is not None
        assert llm.recipe.classifier.pooling == HEADS[name].get("classifier_pooling", "cls")
        outs = llm.classify(TEXTS, use_activation=False, use_tqdm=False, tokenization_kwargs=CUT)
        together = np.array([out.outputs.probs for out in outs])
        assert worst_error(together, np.stack([reference.logits(text) for text in TEXTS])) <= REFERENCE_LIMIT
        alone = [llm.classify([t], use_activation=False, use_tqdm=False, tokenization_kwargs=CUT)[0] for t in TEXTS[3:]]
        assert worst_error([out.outputs.probs for out in alone], together[3:]) <= BATCH_LIMIT


@pytest.mark.parametrize("model_type", ROTARY)
def test_a_classifier_whose_modules_pool_is_an_embedder(
    tiny: Tiny, tiny_sentence: TinySentence, tmp_path: Path, model_type: str
) -> None:
    plain = tiny_sentence(model_type=model_type, pooling="mean")
    folder = Path(shutil.copytree(plain, tmp_path / "m"))
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny(model_type, head="sequence_classification") / name, folder / name)
    with LLM(str(folder)) as ours, LLM(str(plain)) as theirs:
        for a, b in zip(ours.embed(TEXTS[:3], use_tqdm=False), theirs.embed(TEXTS[:3], use_tqdm=False), strict=True):
            assert a.outputs.embedding == b.outputs.embedding


OLD_KEYS: dict[str, dict[str, Any]] = {
    "none": {},
    "bases": {"global_rope_theta": 5000.0, "local_rope_theta": 90.0},
    "turns": {"global_attn_every_n_layers": 2},
    "scaled": {"global_rope_theta": 5000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
}


@pytest.mark.parametrize("name", OLD_KEYS)
def test_old_keys_of_modernbert_say_what_the_new_ones_say(tiny: Tiny, name: str) -> None:
    raw = read_json(tiny("modernbert") / "config.json")
    old = {key: value for key, value in raw.items() if key not in ("rope_parameters", "layer_types")}
    old |= OLD_KEYS[name]
    new = AutoConfig.for_model(**old).to_dict()
    assert not set(new) & {"global_rope_theta", "local_rope_theta", "rope_scaling"}
    find = models.find(old).Config.from_hf
    assert find(old) == find({key: value for key, value in new.items() if key != "global_attn_every_n_layers"})


def test_without_a_base_of_their_own_windows_turn_as_whole_texts_do(tiny: Tiny) -> None:
    config = config_of(tiny("modernbert"), rope_parameters=None, global_rope_theta=700.0, local_rope_theta=None)
    assert set(config.shape.ropes) == {Plain(12, 700.0)}


OPTIONAL = (
    *("hidden_act", "hidden_activation", "norm_eps", "layer_norm_eps", "type_vocab_size", "rope_parameters"),
    *("attention_bias", "mlp_bias", "norm_bias", "layer_types", "local_attention", "head_dim", "pad_token_id"),
    *("classifier_pooling", "classifier_activation"),
)


@pytest.mark.parametrize("model_type", ROTARY)
def test_defaults_are_those_of_the_reference(tiny: Tiny, model_type: str) -> None:
    raw = read_json(tiny(model_type) / "config.json")
    bare = {name: value for name, value in raw.items() if name not in OPTIONAL}
    full = AutoConfig.for_model(**bare).to_dict()
    find = models.find(raw).Config.from_hf
    assert find({**bare, "pad_token_id": full["pad_token_id"]}) == find(full)


def test_the_makers_keys_of_nomic_say_what_those_of_transformers_say(tiny: Tiny, tmp_path: Path) -> None:
    # Gates come in multiples of 256, tables of words in what the file says.
    plain = tiny("nomic_bert", intermediate_size=256, vocab_size=896)
    for number, says in enumerate(({}, {"n_inner": 200}, {"vocab_size": 890, "pad_vocab_size_multiple": 64})):
        assert_same(as_makers(plain, tmp_path / str(number), **says), plain)
    dynamic = tiny("nomic_bert", intermediate_size=256, max_position_embeddings=33)
    scaled = config_of(dynamic, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0})
    says = makers_config(dynamic, rotary_scaling_factor=2.0, max_trained_positions=33)
    assert nomic_bert.Config.from_hf(says) == scaled
    assert (scaled.shape.rope, scaled.position_limit) == (Dynamic(12, 500.0, 2.0, 33), 66)


@pytest.mark.parametrize(
    ("says", "inner", "limit"),
    [
        ({"n_inner": None}, 256, 70),
        ({"n_inner": None, "activation_function": "gelu"}, 240, 70),
        ({"activation_function": "geglu", "n_positions": -1, "max_trained_positions": 50}, 256, 50),
    ],
)
def test_sizes_that_the_makers_leave_out(tiny: Tiny, says: dict[str, Any], inner: int, limit: int) -> None:
    found = nomic_bert.Config.from_hf(makers_config(tiny("nomic_bert"), **says))
    assert (found.shape.inner_size, found.position_limit) == (inner, limit)


def test_part_of_a_head_may_stay_unturned(tiny: Tiny) -> None:
    found = nomic_bert.Config.from_hf(makers_config(tiny("nomic_bert"), rotary_emb_fraction=0.5))
    assert found.shape.rope == Plain(6, 500.0)


def test_experts_biases_and_plain_feed_forwards(tiny: Tiny, tmp_path: Path) -> None:
    model = with_experts(tmp_path)
    inputs = ragged_ids(tiny("nomic_bert"))
    with torch.inference_mode():
        theirs = [
            model(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).last_hidden_state[0].numpy()
            for ids, segments in inputs
        ]
    ours = backbone(tmp_path)
    together = ours.forward(inputs)
    assert worst_of(together, theirs) <= REFERENCE_LIMIT
    assert worst_of([ours.forward([one])[0] for one in inputs], together) <= BATCH_LIMIT
    firsts = ours.forward(inputs, ["first"] * len(inputs))
    assert worst_of(firsts, [rows[:1] for rows in together]) <= BATCH_LIMIT
    half = backbone(tmp_path, "bfloat16").forward(inputs)
    assert cosine(np.concatenate(half), np.concatenate(theirs)) >= HALF_COSINE


def test_stored_frequencies_of_old_files_are_dropped(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("nomic_bert"), tmp_path / "old"))
    state = load_file(folder / "model.safetensors")
    more = {"encoder.layers.0.attn.rotary_emb.inv_freq": torch.ones(6)}
    save_file({**state, **more}, folder / "model.safetensors", metadata={"format": "pt"})
    assert_same(folder, tiny("nomic_bert"))


def test_the_own_scaling_of_gte_is_a_larger_base_and_slower(tiny: Tiny) -> None:
    found = config_of(tiny("new"))
    assert isinstance(found, gte.Config)
    assert (found.shape.rope, found.position_limit) == (Linear(12, 240.0, 8 ** (1 / 6)), 70)
    bare = {key: value for key, value in read_json(tiny("new") / "config.json").items() if "rope" not in key}
    assert gte.Config.from_hf(bare).shape.rope == Plain(12, 10_000.0)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "kinds of layers": ("modernbert", {"layer_types": ["full_attention"] * 2}, "layer_types"),
    "a kind of layer": ("modernbert", {"layer_types": ["linear_attention"] * 3}, "layer_types"),
    "flat positions": ("modernbert", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters"),
    "a pooling": ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling='max'"),
    "a window of 0": ("modernbert", {"local_attention": 0}, "local_attention=0"),
    "learned positions": ("gte", {"position_embedding_type": "absolute"}, "position_embedding_type"),
    "another norm": ("gte", {"layer_norm_type": "rms_norm"}, "layer_norm_type"),
    "scores that grow": ("new", {"logn_attention_scale": True}, "logn_attention_scale"),
    "a mixed scaling": ("new", {"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}}, "mixed_b=0.6"),
    "heads of another size": ("nomic_bert", {"head_dim": 16}, "head_dim=16"),
}
REFUSED_OF_MAKERS: dict[str, tuple[dict[str, Any], str]] = {
    "norms first": ({"prenorm": True}, "prenorm=True"),
    "neighbours as pairs": ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved=True"),
    "no rotary positions": ({"rotary_emb_fraction": 0.0}, "turn 0 dimensions"),
    "an activation": ({"activation_function": "gelu_new"}, "activation_function='gelu_new'"),
    "experts with gates": ({"moe_every_n_layers": 2, "num_experts": 4, "moe_top_k": 2}, "swiglu.*experts"),
    "more than all experts": (
        {"activation_function": "gelu", "moe_every_n_layers": 2, "num_experts": 4, "moe_top_k": 5},
        "moe_top_k=5",
    ),
    "shared keys": ({"num_heads_kv": 1}, "num_heads_kv=1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_config_says_and_we_do_not_do_stops_the_start(tiny: Tiny, name: str) -> None:
    model_type, says, message = REFUSED[name]
    with pytest.raises(CheckpointError, match=message):
        config_of(tiny(model_type), **says)


@pytest.mark.parametrize("name", REFUSED_OF_MAKERS)
def test_what_the_makers_of_nomic_say_and_we_do_not_do_stops_the_start(tiny: Tiny, name: str) -> None:
    says, message = REFUSED_OF_MAKERS[name]
    with pytest.raises(CheckpointError, match=message):
        nomic_bert.Config.from_hf(makers_config(tiny("nomic_bert"), **says))


def test_a_classifier_of_the_makers_is_read(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny("nomic_bert", head="sequence_classification", intermediate_size=256)
    folder = as_makers(source, tmp_path / "m")
    raw = read_json(source / "config.json")
    folder = changed(folder, tmp_path / "n", id2label=raw["id2label"])
    for path in source.glob("tokenizer*"):
        shutil.copy(path, folder / path.name)
    with LLM(str(folder)) as ours, LLM(str(source)) as theirs:
        for a, b in zip(ours.classify(TEXTS[:4]), theirs.classify(TEXTS[:4]), strict=True):
            assert a.outputs.probs == b.outputs.probs
