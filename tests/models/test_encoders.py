"""What is special about JinaBERT and the encoders of T5: borrowed names, tied tables, decoders left out, refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from cenote import LLM, models
from cenote.errors import CheckpointError, UnsupportedTask, WeightMismatch
from cenote.layers.alibi import slopes
from cenote.layers.packed import Packed
from cenote.models import bert, jina_bert
from cenote.steps import Pooling
from cenote.types import Batch, Encoded
from support.checkpoints import randomise
from support.classifiers import Reference, changed
from support.fixtures import Tiny, TinySentence
from support.forwards import EMBED, backbone
from support.jina_bert import MAKERS, MAKERS_NORMED
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import ragged_ids, reference_vectors, worst_error
from support.saving import Saved, read_json
from support.sentence_folders import Dense
from support.t5 import T5
from support.texts import paragraphs, short_texts

TEXTS = [*short_texts(6), "", paragraphs(1)[0]]
CUT = {"truncate_prompt_tokens": -1}
FAMILIES = ("jina_bert", *T5)


def config_of(folder: Path, **values: Any) -> Any:
    raw = {**read_json(folder / "config.json"), **values}
    return models.find(raw).Config.from_hf(raw)


def assert_same(folder: Path, other: Path) -> None:
    inputs = ragged_ids(other, (3, 17, 70))
    for ours, theirs in zip(backbone(folder).forward(inputs), backbone(other).forward(inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def rewritten(source: Path, folder: Path, state: dict[str, torch.Tensor]) -> Path:
    """A copy of `source` with these tensors in a `pytorch_model.bin`, where names may share them."""
    shutil.copytree(source, folder)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    return folder


@pytest.mark.parametrize("style", [Saved(prefix="add"), Saved(format="sharded"), Saved(format="bin")], ids=str)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_how_weights_lie_changes_nothing(tiny: Tiny, model_type: str, style: Saved) -> None:
    assert_same(tiny(model_type, saved=style), tiny(model_type))


@pytest.mark.parametrize("makers", [MAKERS, MAKERS_NORMED])
def test_a_bert_whose_scores_fall_with_distance_is_a_jina_bert(tiny: Tiny, tmp_path: Path, makers: str) -> None:
    source = tiny("jina_bert", auto_map={"AutoModel": makers})
    named = changed(source, tmp_path / "m", model_type="bert", architectures=["JinaBertForMaskedLM"])
    assert models.find(read_json(named / "config.json")) is models.find({"model_type": "jina_bert"})
    assert_same(named, source)
    # Copies that were trained on keep the makers' name in another place.
    moved = changed(named, tmp_path / "n", auto_map=None, _name_or_path=makers.partition("--")[0])
    assert_same(moved, source)
    assert models.find(read_json(tiny("bert") / "config.json")).Model is bert.Model


def test_a_jina_bert_of_the_other_kind_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny("jina_bert", auto_map={"AutoModel": MAKERS_NORMED})
    with pytest.raises(WeightMismatch, match="layer_norm_q"):
        backbone(changed(source, tmp_path / "m", auto_map={"AutoModel": MAKERS}))


@pytest.mark.parametrize(
    ("num_heads", "published"),
    [
        (8, [2.0**-i for i in range(1, 9)]),
        (12, [*(2.0**-i for i in range(1, 9)), *(2.0 ** -(i + 0.5) for i in range(4))]),
        (1, [2.0**-8]),
    ],
)
def test_slopes_are_the_published_ones(num_heads: int, published: list[float]) -> None:
    assert slopes(num_heads) == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize("makers", [MAKERS, MAKERS_NORMED])
@pytest.mark.parametrize("tokens", [False, True])
def test_classifiers_of_jina_bert(tiny: Tiny, makers: str, tokens: bool) -> None:
    head = "token_classification" if tokens else "sequence_classification"
    folder = tiny("jina_bert", head=head, num_labels=2, auto_map={"AutoModel": makers})
    assert_logits(folder, tokens)


@pytest.mark.parametrize("model_type", T5[:2])
def test_classifiers_of_the_tokens_of_t5(tiny: Tiny, model_type: str) -> None:
    assert_logits(tiny(model_type, head="token_classification", num_labels=2), tokens=True)


def assert_logits(folder: Path, tokens: bool) -> None:
    reference = Reference(folder, tokens=tokens)
    expected = np.concatenate([np.atleast_2d(reference.logits(text)) for text in TEXTS])
    task = "token_classify" if tokens else "classify"
    with LLM(str(folder)) as llm:
        outs = llm.encode(TEXTS, pooling_task=task, use_activation=False, use_tqdm=False, tokenization_kwargs=CUT)
        ours = np.concatenate([np.atleast_2d(out.outputs.data.numpy()) for out in outs])
    assert worst_error(ours, expected) <= REFERENCE_LIMIT


@pytest.mark.parametrize("model_type", FAMILIES)
def test_sentence_transformers_folders(tiny_sentence: TinySentence, model_type: str) -> None:
    dense = Dense(out_features=28, activation="Identity", bias=False)
    folder = tiny_sentence(model_type=model_type, pooling="mean", dense=dense, normalize=True)
    theirs = reference_vectors(folder, TEXTS)
    with LLM(str(folder)) as llm:
        ours = [out.outputs.embedding for out in llm.embed(TEXTS, use_tqdm=False, tokenization_kwargs=CUT)]
        alone = [llm.embed([text], use_tqdm=False, tokenization_kwargs=CUT)[0].outputs.embedding for text in TEXTS[4:]]
    assert max(worst_error(a, b) for a, b in zip(ours, theirs, strict=True)) <= REFERENCE_LIMIT
    assert max(worst_error(a, b) for a, b in zip(alone, ours[4:], strict=True)) <= BATCH_LIMIT


@pytest.mark.parametrize("model_type", ["jina_bert", "t5"])
def test_without_modules_the_mean_is_pooled(tiny: Tiny, tiny_sentence: TinySentence, model_type: str) -> None:
    theirs = reference_vectors(tiny_sentence(model_type=model_type, pooling="mean", normalize=True), TEXTS[:3])
    with LLM(str(tiny(model_type))) as llm:
        assert (llm.recipe.steps, llm.recipe.normalize) == ((Pooling(("mean",)),), True)
        outs = llm.embed(TEXTS[:3], use_tqdm=False)
        assert max(worst_error(o.outputs.embedding, t) for o, t in zip(outs, theirs, strict=True)) <= REFERENCE_LIMIT


@pytest.mark.parametrize("model_type", T5)
def test_a_decoder_is_left_out(tiny: Tiny, tmp_path: Path, model_type: str) -> None:
    folder = tiny(model_type)
    whole = AutoModelForSeq2SeqLM.from_config(AutoConfig.from_pretrained(folder))
    randomise(whole, 1)
    whole.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    whole.save_pretrained(tmp_path)
    assert any(name.startswith("decoder.") for name in load_file(tmp_path / "model.safetensors"))
    assert_same(tmp_path, folder)


@pytest.mark.parametrize(
    "names", [("shared", "encoder.embed_tokens", "decoder.embed_tokens"), ("encoder.embed_tokens",)]
)
def test_a_tied_table_may_have_every_name(tiny: Tiny, tmp_path: Path, names: tuple[str, ...]) -> None:
    state = load_file(tiny("t5") / "model.safetensors")
    words = state.pop("shared.weight")
    folder = rewritten(tiny("t5"), tmp_path / "m", {**state, **{f"{name}.weight": words for name in names}})
    assert_same(folder, tiny("t5"))


def test_a_table_that_is_not_tied_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    state = load_file(tiny("t5") / "model.safetensors")
    other = {"encoder.embed_tokens.weight": state["shared.weight"] + 1}
    with pytest.raises(WeightMismatch, match=r"1 stored twice: encoder\.embed_tokens\.weight"):
        backbone(rewritten(tiny("t5"), tmp_path / "m", {**state, **other}))


def test_biases_of_the_layers_of_umt5_are_all_needed(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("umt5"), tmp_path / "m"))
    state = load_file(folder / "model.safetensors")
    gone = "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"
    save_file({name: t for name, t in state.items() if name != gone}, folder / "model.safetensors")
    with pytest.raises(WeightMismatch, match=r"1 needed but not stored: relative\.1\.bias"):
        backbone(folder)


def test_t5_reads_what_its_tokenizer_allows(tiny: Tiny) -> None:
    assert config_of(tiny("t5")).position_limit is None
    with LLM(str(tiny("t5"))) as llm:
        assert llm.recipe.max_len == 70


@pytest.mark.parametrize("model_type", T5)
def test_defaults_are_those_of_the_reference(tiny: Tiny, model_type: str) -> None:
    optional = (
        *("num_heads", "d_kv", "feed_forward_proj", "layer_norm_epsilon"),
        *("relative_attention_num_buckets", "relative_attention_max_distance"),
    )
    raw = read_json(tiny(model_type) / "config.json")
    bare = {name: value for name, value in raw.items() if name not in (*optional, "dense_act_fn", "is_gated_act")}
    full = AutoConfig.for_model(**bare).to_dict()
    assert config_of(tiny(model_type), **dict.fromkeys(optional)) == config_of(tiny(model_type), **full)


def test_t5_classifies_no_whole_texts(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(tiny("t5"), tmp_path / "m", architectures=["T5ForSequenceClassification"])
    with pytest.raises((CheckpointError, UnsupportedTask)):
        LLM(str(folder))


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a feed-forward": ("jina_bert", {"feed_forward_type": "swiglu"}, "feed_forward_type='swiglu'"),
    "no feed-forward": ("jina_bert", {"feed_forward_type": None}, "no 'feed_forward_type'"),
    "learned positions": ("jina_bert", {"position_embedding_type": "absolute"}, "position_embedding_type"),
    "an activation": ("t5", {"feed_forward_proj": "gated-swiglu"}, "feed_forward_proj='gated-swiglu'"),
    "buckets": ("t5", {"relative_attention_num_buckets": 30}, "30 relative_attention_num_buckets"),
    "near distances": ("umt5", {"relative_attention_max_distance": 3}, "distances up to 3"),
    "quantised": ("mt5", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_config_says_and_we_do_not_do_stops_the_start(tiny: Tiny, name: str) -> None:
    model_type, says, message = REFUSED[name]
    with pytest.raises(CheckpointError, match=message):
        config_of(tiny(model_type), **says)


def test_a_jina_bert_reads_texts_as_long_as_it_says(tiny: Tiny) -> None:
    config = config_of(tiny("jina_bert"), max_position_embeddings=8192)
    assert isinstance(config, jina_bert.Config)
    assert config.position_limit == 8192


@pytest.mark.parametrize("kernel", [0, 5])
def test_tokens_that_are_not_attended_to_reach_as_far_as_others(tiny: Tiny, kernel: int) -> None:
    model = backbone(tiny("deberta-v2", conv_kernel_size=kernel))
    ((ids, _),) = ragged_ids(tiny("deberta-v2"), (40,))
    encoded = [Encoded(np.array(ids, np.int32), attended=4), Encoded(np.array(ids[:4], np.int32))]
    packed = Packed.of(Batch.pack(encoded, [EMBED] * 2), torch.device("cpu"))
    with torch.inference_mode():
        rows = model.model(packed).last_QD.numpy()
    assert worst_error(rows[:4], rows[40:]) <= BATCH_LIMIT
    assert np.isfinite(rows).all()
