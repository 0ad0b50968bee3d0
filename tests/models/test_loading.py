"""Weights as they are found lying in folders, and folders that must not start."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, BertForPreTraining, ElectraForPreTraining, PreTrainedModel

from cenote import models
from cenote.errors import CheckpointError, UnknownArchitecture, WeightMismatch
from cenote.models import bert
from cenote.runner import Runner
from support.checkpoints import MODEL_TYPES
from support.fixtures import Tiny
from support.forwards import CPU, backbone, pack, recipe_of
from support.references import ragged_ids
from support.saving import Saved, hub_cache, read_json, write_json

STYLES = {
    "prefixed": Saved(prefix="add"),
    "sharded": Saved(format="sharded"),
    "sharded, prefixed": Saved(format="sharded", prefix="add"),
    "bin": Saved(format="bin"),
    "sharded bin": Saved(format="sharded_bin", prefix="add"),
    "gamma and beta": Saved(legacy_norms=True),
    "position_ids": Saved(position_ids=True),
    "an old save": Saved(format="bin", prefix="add", legacy_norms=True, position_ids=True),
}


def forward(folder: Path, dtype: str = "float32") -> list[np.ndarray]:
    return list(backbone(folder, dtype).forward(ragged_ids(folder, (3, 17, 70))))


def assert_same(folder: Path, other: Path) -> None:
    for ours, theirs in zip(forward(folder), forward(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("style", STYLES)
def test_how_weights_lie_changes_nothing(tiny: Tiny, style: str) -> None:
    assert_same(tiny("bert", saved=STYLES[style]), tiny("bert"))


@pytest.mark.parametrize("style", ["prefixed", "position_ids", "sharded bin"])
@pytest.mark.parametrize("model_type", [model_type for model_type in MODEL_TYPES if model_type != "bert"])
def test_how_weights_lie_changes_nothing_in_other_families(tiny: Tiny, model_type: str, style: str) -> None:
    assert_same(tiny(model_type, saved=STYLES[style]), tiny(model_type))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_masked_language_model_is_read_as_its_base(tiny: Tiny, model_type: str) -> None:
    assert_same(tiny(model_type, head="masked_lm"), tiny(model_type))
    assert_same(tiny(model_type, head="masked_lm", saved=Saved(format="bin")), tiny(model_type))


@pytest.mark.parametrize("kind", [BertForPreTraining, ElectraForPreTraining])
def test_pretraining_heads_are_dropped(tiny: Tiny, tmp_path: Path, kind: type[PreTrainedModel]) -> None:
    folder = tiny("bert" if kind is BertForPreTraining else "electra")
    shutil.copytree(folder, tmp_path / "pretrained")
    kind.from_pretrained(folder).save_pretrained(tmp_path / "pretrained")
    assert any("predictions" in name for name in load_file(tmp_path / "pretrained" / "model.safetensors"))
    assert_same(tmp_path / "pretrained", folder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weights_run_in_float32_exactly(tiny: Tiny, tmp_path: Path, dtype: str) -> None:
    folder = tiny("bert", dtype=dtype)
    widened = tmp_path / "widened"
    shutil.copytree(folder, widened)
    change_weights(widened, lambda state: {name: tensor.float() for name, tensor in state.items()})
    assert recipe_of(folder).stored_dtype == dtype
    assert_same(folder, widened)


def test_a_folder_of_links_is_read(tiny: Tiny, tmp_path: Path) -> None:
    snapshot = hub_cache(tiny("bert", saved=Saved(format="sharded")), tmp_path)
    assert all(path.is_symlink() for path in snapshot.iterdir() if path.is_file())
    assert_same(snapshot, tiny("bert"))


def test_a_local_folder_opens_no_socket(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    folder = tiny("bert")
    inputs = ragged_ids(folder, (3, 5))
    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    (rows,) = Runner(recipe_of(folder), CPU).run(pack(inputs))
    assert len(rows.rows) == 2


@pytest.mark.parametrize("style", [Saved(), Saved(format="sharded"), Saved(format="bin")])
def test_weights_in_the_wanted_precision_stay_in_their_file(tiny: Tiny, style: Saved) -> None:
    folder = tiny("bert", saved=style)
    words = cast(bert.Model, backbone(folder).model).embeddings.words.weight
    assert mapped_file(words).startswith(str(folder))


def test_weights_in_another_precision_are_copied(tiny: Tiny) -> None:
    folder = tiny("bert", dtype="bfloat16")
    words = cast(bert.Model, backbone(folder).model).embeddings.words.weight
    assert mapped_file(words) == ""


def mapped_file(tensor: Tensor) -> str:
    """The file whose mapping holds the data of `tensor`, or "" where it is plain memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *rest = line.split(maxsplit=5)
        begin, end = (int(edge, 16) for edge in span.split("-"))
        if begin <= tensor.data_ptr() < end:
            return rest[4] if len(rest) > 4 and rest[4].startswith("/") else ""
    raise AssertionError("The tensor lies in no mapping of this process.")


def extra(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"encoder.layer.3.output.dense.bias": torch.zeros(60)}


def missing(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name != "encoder.layer.1.attention.self.key.bias"}


def reshaped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"encoder.layer.2.output.dense.weight": torch.zeros(60, 83)}


def doubled(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"bert.embeddings.LayerNorm.bias": torch.zeros(60)}


def quantised(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"encoder.layer.0.output.dense.weight": torch.ones(60, 84, dtype=torch.int8)}


def classifier(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"classifier.weight": torch.zeros(3, 60)}


WRONG: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "extra": (extra, r"1 without a use here: encoder\.layer\.3\.output\.dense\.bias"),
    "missing": (missing, r"1 needed but not stored: encoder\.blocks\.1\.qkv\.key\.bias"),
    "shape": (reshaped, r"encoder\.layer\.2\.output\.dense\.weight is \[60, 83\], config\.json says \[60, 84\]"),
    "twice": (doubled, r"1 stored twice: .*embeddings\.LayerNorm\.bias"),
    "quantised": (quantised, r"encoder\.layer\.0\.output\.dense\.weight is int8"),
    "an undeclared head": (classifier, r"1 without a use here: classifier\.weight"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_weights_that_do_not_fit_stop_the_start(tiny: Tiny, tmp_path: Path, wrong: str) -> None:
    change, message = WRONG[wrong]
    folder = Path(shutil.copytree(tiny("bert"), tmp_path / "wrong"))
    change_weights(folder, change)
    with pytest.raises(WeightMismatch, match=message):
        backbone(folder)


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in load_file(path).items()}
    path.unlink()
    save_file(change(state), path, metadata={"format": "pt"})


def test_a_shard_that_is_not_there_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("bert", saved=Saved(format="sharded")), tmp_path / "wrong"))
    gone = next(folder.glob("model-00002-*.safetensors"))
    gone.unlink()
    with pytest.raises(CheckpointError, match=gone.name):
        backbone(folder)


def test_a_folder_without_weights_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("bert"), tmp_path / "wrong"))
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        backbone(folder)


REFUSED: dict[str, tuple[str, dict[str, object]]] = {
    "relative positions": ("bert", {"position_embedding_type": "relative_key"}),
    "relative positions of a relative": ("xlm-roberta", {"position_embedding_type": "relative_key_query"}),
    "a decoder": ("roberta", {"is_decoder": True}),
    "cross attention": ("electra", {"add_cross_attention": True}),
    "pruned heads": ("distilbert", {"pruned_heads": {"0": [1]}}),
    "quantised": ("mpnet", {"quantization_config": {"quant_method": "bitsandbytes"}}),
    "an activation": ("bert", {"hidden_act": "quick_gelu"}),
    "heads that do not divide": ("bert", {"num_attention_heads": 7}),
    "heads that do not divide dim": ("distilbert", {"n_heads": 7}),
    "buckets": ("mpnet", {"relative_attention_num_buckets": 64}),
    "a padding id beyond the positions": ("roberta", {"pad_token_id": 71}),
    "a size of 0": ("electra", {"embedding_size": 0}),
    "an even convolution": ("deberta-v2", {"conv_kernel_size": 4}),
    "a convolution in groups": ("deberta-v2", {"conv_groups": 2, "conv_kernel_size": 3}),
    "what a convolution ends in": ("deberta-v2", {"conv_act": "swiglu", "conv_kernel_size": 3}),
    "no distances": ("deberta-v2", {"relative_attention": False}),
    "scores of positions alone": ("deberta-v2", {"pos_att_type": ["p2p", "c2p"]}),
    "more buckets than distances": ("deberta-v2", {"position_buckets": 140}),
    "narrow embeddings": ("deberta-v2", {"embedding_size": 44}),
    "another pooler": ("deberta-v2", {"pooler_hidden_act": "tanh"}),
    "a size in words": ("camembert", {"hidden_size": "768"}),
    "an epsilon in words": ("bert", {"layer_norm_eps": "1e-12"}),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_a_config_says_and_we_do_not_do_stops_the_start(tiny: Tiny, refused: str) -> None:
    model_type, change = REFUSED[refused]
    raw = read_json(tiny(model_type) / "config.json") | change
    with pytest.raises(CheckpointError, match=next(iter(change))):
        models.find(raw).Config.from_hf(raw)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_missing_key_is_named(tiny: Tiny, model_type: str) -> None:
    raw = read_json(tiny(model_type) / "config.json")
    heads = "n_heads" if model_type == "distilbert" else "num_attention_heads"
    for key in ("vocab_size", "max_position_embeddings", heads):
        with pytest.raises(CheckpointError, match=rf"no '{key}'"):
            models.find(raw).Config.from_hf({name: value for name, value in raw.items() if name != key})


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_defaults_are_those_of_the_reference(tiny: Tiny, model_type: str) -> None:
    optional = (
        *("hidden_act", "activation", "layer_norm_eps", "type_vocab_size", "pad_token_id", "embedding_size"),
        *("max_relative_positions", "position_biased_input"),
    )
    raw = read_json(tiny(model_type) / "config.json")
    bare = {name: value for name, value in raw.items() if name not in optional}
    full = AutoConfig.for_model(model_type).to_dict()
    filled = bare | {name: full[name] for name in optional if name in full}
    architecture = models.find(raw)
    assert architecture.Config.from_hf(bare) == architecture.Config.from_hf(filled)


@pytest.mark.parametrize("named", ["no-such-family", "", "bert.py", "__init__"])
def test_an_unknown_architecture_is_named(tiny: Tiny, tmp_path: Path, named: str) -> None:
    folder = Path(shutil.copytree(tiny("bert"), tmp_path / "unknown"))
    write_json(folder / "config.json", read_json(folder / "config.json") | {"model_type": named})
    with pytest.raises(UnknownArchitecture, match=f"'{named}'.*Served are albert, bert"):
        recipe_of(folder)
