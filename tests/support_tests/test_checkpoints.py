"""The tiny checkpoints load whole in the reference, and are random enough to show a mistake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoTokenizer

from support.checkpoints import HEADS, MODEL_TYPES, VARIANTS, tiny_transformer
from support.decoders import DECODERS
from support.fixtures import Tiny
from support.references import Float32, ragged_ids, reference_hidden, reference_ids, worst_error
from support.saving import POSITION_EMBEDDINGS, Saved, hub_cache
from support.texts import edge_texts, short_texts

# What parity allows is 1e-5; a mistake has to stand clear of it.
VISIBLE = 1e-4


@pytest.mark.parametrize("model_type", DECODERS)
def test_language_models_load_whole(model_type: str, tiny: Tiny) -> None:
    folder = tiny(model_type)
    _, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("one text")["input_ids"][-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


@pytest.mark.parametrize("variant", VARIANTS)
def test_loads_whole_and_reads_its_longest_text(variant: str, tiny: Tiny) -> None:
    model_type, overrides = VARIANTS[variant]
    folder = tiny(model_type, **overrides)
    _, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    hidden = reference_hidden(folder, ragged_ids(folder))
    assert [rows.shape for rows in hidden] == [(n, 60) for n in (1, 2, 3, 7, 16, 33, 16, 70)]
    assert all(rows.dtype == np.float32 and np.isfinite(rows).all() for rows in hidden)
    if any(name.endswith(POSITION_EMBEDDINGS) for name in load_file(folder / "model.safetensors")):
        with pytest.raises((IndexError, RuntimeError)):
            reference_hidden(folder, ragged_ids(folder, (71,)))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_weights_are_far_from_an_initialisation(model_type: str, tiny: Tiny) -> None:
    for name, tensor in load_file(tiny(model_type) / "model.safetensors").items():
        least = 0.15 if tensor.ndim > 1 or name.endswith("weight") else 0.07
        assert tensor.std() > least, name


ENCODER_HEADS = [(model_type, head) for model_type in MODEL_TYPES for head in HEADS if head != "causal_lm"]
DECODER_HEADS = [(model_type, head) for model_type in DECODERS for head in ("causal_lm", "sequence_classification")]


@pytest.mark.parametrize(("model_type", "head"), [*ENCODER_HEADS, *DECODER_HEADS])
def test_one_seed_gives_one_body_under_every_head(model_type: str, head: str, tiny: Tiny) -> None:
    folder = tiny(model_type, head=head)
    inputs = ragged_ids(folder, (9,))
    (hidden,) = reference_hidden(folder, inputs)
    (base,) = reference_hidden(tiny(model_type), inputs)
    (other,) = reference_hidden(tiny(model_type, head=head, seed=1), inputs)
    assert np.array_equal(hidden, base)
    assert worst_error(other, base) > 0.1


def changed(folder: Path, into: Path, **config: Any) -> Path:
    """A copy of the model whose config says something else."""
    shutil.copytree(folder, into)
    values = json.loads((into / "config.json").read_text())
    assert set(config) <= set(values)
    (into / "config.json").write_text(json.dumps(values | config))
    return into


def activation(folder: Path) -> str:
    return "activation" if AutoConfig.from_pretrained(folder).model_type == "distilbert" else "hidden_act"


Mistake = Callable[[Path, Path, list[tuple[list[int], list[int]]]], list[Float32]]
MISTAKES: dict[str, Mistake] = {
    "tanh GELU": lambda f, to, x: reference_hidden(changed(f, to, **{activation(f): "gelu_new"}), x),
    "ReLU": lambda f, to, x: reference_hidden(changed(f, to, **{activation(f): "relu"}), x),
    "epsilon": lambda f, to, x: reference_hidden(changed(f, to, layer_norm_eps=1e-5), x),
    "heads": lambda f, to, x: reference_hidden(
        changed(f, to, **{"n_heads" if activation(f) == "activation" else "num_attention_heads": 6}), x
    ),
    "no segments": lambda f, _, x: reference_hidden(f, [(ids, [0] * len(ids)) for ids, _ in x]),
    "positions": lambda f, _, x: [rows[::-1] for rows in reference_hidden(f, [(i[::-1], s[::-1]) for i, s in x])],
}
# Another number of heads does not fit MPNet's table of position biases, so it cannot pass unseen there.
LACKING = {
    *(("distilbert", "epsilon"), ("mpnet", "heads")),
    *((model_type, "no segments") for model_type in ("distilbert", "mpnet", "deberta-v2")),
}


@pytest.mark.parametrize(
    ("model_type", "mistake"), [(m, e) for m in MODEL_TYPES for e in MISTAKES if (m, e) not in LACKING]
)
def test_a_mistake_shows(model_type: str, mistake: str, tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny(model_type)
    inputs = ragged_ids(folder, (16, 33))
    inputs = [(ids, [int(place >= 5) for place in range(len(ids))]) for ids, _ in inputs]
    wrong = MISTAKES[mistake](folder, tmp_path / "wrong", inputs)
    right = reference_hidden(folder, inputs)
    assert all(worst_error(a, b) > VISIBLE for a, b in zip(wrong, right, strict=True))


def test_what_a_family_lacks_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="distilbert has no layer_norm_eps"):
        tiny_transformer("distilbert", tmp_path, layer_norm_eps=1e-3)
    with pytest.raises(ValueError, match="No tokenizer is made for 'gpt2'"):
        tiny_transformer("gpt2", tmp_path)


STYLES = [
    Saved(format="sharded"),
    Saved(format="bin"),
    Saved(format="sharded_bin"),
    Saved(prefix="add"),
    Saved(legacy_norms=True),
    Saved(position_ids=True),
    Saved(format="sharded", prefix="add", legacy_norms=True, position_ids=True),
]


# Each way with two families, the last one, which is most of them at once, with all.
SAVES = [("bert", saved) for saved in STYLES[:-1]] + [("distilbert", saved) for saved in STYLES[:-1]]
SAVES += [(model_type, STYLES[-1]) for model_type in MODEL_TYPES]


@pytest.mark.parametrize(("model_type", "saved"), SAVES, ids=str)
def test_every_way_of_saving_holds_the_same_model(model_type: str, saved: Saved, tiny: Tiny, tmp_path: Path) -> None:
    plain = tiny(model_type)
    folder = tiny_transformer(model_type, tmp_path, saved=saved)
    inputs = ragged_ids(plain, (3, 16))
    for ours, expected in zip(reference_hidden(folder, inputs), reference_hidden(plain, inputs), strict=True):
        assert np.array_equal(ours, expected)
    files = {path.name for path in folder.iterdir()}
    suffix = ".bin" if saved.format.endswith("bin") else ".safetensors"
    weights = [name for name in files if name.endswith((".bin", ".safetensors"))]
    assert all(name.endswith(suffix) for name in weights)
    assert (len(weights) > 1) == saved.format.startswith("sharded")
    assert any(name.endswith(f"{suffix}.index.json") for name in files) == saved.format.startswith("sharded")


def test_names_in_the_file_are_the_ones_asked_for(tmp_path: Path) -> None:
    saved = Saved(prefix="add", legacy_norms=True, position_ids=True)
    state = load_file(tiny_transformer("bert", tmp_path, saved=saved) / "model.safetensors")
    assert all(name.startswith("bert.") for name in state)
    assert {"bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.beta"} <= set(state)
    assert not any(name.endswith(("LayerNorm.weight", "LayerNorm.bias")) for name in state)
    assert state["bert.embeddings.position_ids"].tolist() == [list(range(70))]


def test_a_headed_save_has_the_prefix_and_can_lose_it(tiny: Tiny, tmp_path: Path) -> None:
    headed = set(load_file(tiny("roberta", head="masked_lm") / "model.safetensors"))
    bare = tiny_transformer("roberta", tmp_path / "bare", head="masked_lm", saved=Saved(prefix="strip"))
    stripped = set(load_file(bare / "model.safetensors"))
    assert "roberta.embeddings.word_embeddings.weight" in headed
    assert stripped == {name.removeprefix("roberta.") for name in headed}
    with pytest.raises(ValueError, match=r"already start with 'roberta\.'"):
        tiny_transformer("roberta", tmp_path / "twice", head="masked_lm", saved=Saved(prefix="add"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_the_same_model_rounded(dtype: str, tiny: Tiny) -> None:
    folder = tiny("bert", dtype=dtype)
    plain = load_file(tiny("bert") / "model.safetensors")
    assert AutoConfig.from_pretrained(folder).dtype == getattr(torch, dtype)
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert torch.equal(tensor, plain[name].to(getattr(torch, dtype)))


def test_the_hub_cache_is_links_and_answers_to_its_id_offline(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("bert")
    snapshot = hub_cache(folder, tmp_path)
    assert {path.name for path in snapshot.iterdir()} == {path.name for path in folder.iterdir()}
    assert all(path.is_symlink() and path.resolve().parent.name == "blobs" for path in snapshot.iterdir())
    model = AutoModel.from_pretrained("tests/tiny", cache_dir=tmp_path, local_files_only=True)
    assert torch.equal(
        model.embeddings.word_embeddings.weight,
        load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"],
    )


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, *DECODERS])
def test_tokenizers_fit_their_models(model_type: str, tiny: Tiny) -> None:
    folder = tiny(model_type)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = AutoConfig.from_pretrained(folder)
    assert config.vocab_size % 2 == 1
    assert len(tokenizer) <= config.vocab_size
    assert tokenizer.model_max_length == 70
    assert tokenizer.pad_token_id == config.pad_token_id
    texts = short_texts(50) + edge_texts()
    inputs = reference_ids(folder, texts, truncation=True)
    assert max(len(ids) for ids, _ in inputs) == 70
    assert max(max(ids) for ids, _ in inputs) < config.vocab_size
    assert all((segments is not None) == (model_type in ("bert", "electra", "deberta-v2")) for _, segments in inputs)
    known = [token for ids, _ in inputs[:50] for token in ids if token != tokenizer.unk_token_id]
    assert len(set(known)) > 200
    assert all(np.isfinite(rows).all() for rows in reference_hidden(folder, inputs))


def test_equal_arguments_give_one_folder(tiny: Tiny) -> None:
    assert tiny("bert") == tiny("bert")
    assert tiny("bert", seed=1) != tiny("bert")
