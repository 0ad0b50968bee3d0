"""Folders that hold an adapter and name a base model: whose files count, what is refused, and jina-embeddings-v5."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cenote import LLM
from cenote.config import MachineSettings
from cenote.errors import CheckpointError, ConfigError, ModelNotFound, WeightMismatch
from cenote.fingerprint import fingerprint
from support.classifiers import Reference
from support.fixtures import Tiny, TinySentence
from support.foreign import foreign
from support.forwards import backbone, recipe_of
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import ragged_ids, reference_hidden, reference_vectors, worst_error
from support.saving import read_json, write_json
from support.texts import short_texts

TEXTS = short_texts(4)
RANK, ALPHA = 2, 3
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}


def updates(state: dict[str, Tensor], ends: tuple[str, ...]) -> dict[str, Tensor]:
    """Updates of the matrices whose names end so, as PEFT names them."""
    source = torch.Generator().manual_seed(5)
    found = {}
    for name in (name for name in sorted(state) if name.endswith(ends)):
        rows, columns = state[name].shape
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        found[f"{stem}.lora_A.weight"] = 0.2 * torch.randn(RANK, columns, generator=source)
        found[f"{stem}.lora_B.weight"] = 0.2 * torch.randn(rows, RANK, generator=source)
    return found


def merged(base: Path, folder: Path, added: dict[str, Tensor]) -> Path:
    """A copy of `base` with the updates in its weights."""
    shutil.copytree(base, folder)
    state = load_file(base / "model.safetensors")
    for name in [name for name in added if ".lora_A." in name]:
        stem = name.removesuffix(".lora_A.weight")
        weight = f"{stem.removeprefix('base_model.model.')}.weight"
        state[weight] = state[weight] + ALPHA / RANK * added[f"{stem}.lora_B.weight"] @ added[name]
    whole = {name.removeprefix("base_model.model."): tensor for name, tensor in added.items() if ".lora_" not in name}
    save_file({**state, **whole}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def adapter(base: Path | str, folder: Path, added: dict[str, Tensor], **says: Any) -> Path:
    """A folder with an adapter alone."""
    folder.mkdir(parents=True)
    write_json(folder / "adapter_config.json", {**CONFIG, "base_model_name_or_path": str(base), **says})
    save_file(added, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("model_type", "ends"), [("bert", ("query.weight", "dense.weight")), ("llama", ("q_proj.weight", "o_proj.weight"))]
)
def test_a_sentence_transformer_may_be_an_adapter(
    tiny_sentence: TinySentence, tmp_path: Path, model_type: str, ends: tuple[str, ...]
) -> None:
    base = tiny_sentence(model_type=model_type, pooling="mean", normalize=True)
    added = updates(load_file(base / "model.safetensors"), ends)
    if model_type == "bert":
        # Nothing reads the pooler, and what updates it belongs to no tensor that was stored.
        added = {name: tensor for name, tensor in added.items() if "pooler" not in name}
    expected = reference_vectors(merged(base, tmp_path / "merged", added), TEXTS)
    folder = adapter(base, tmp_path / "adapter", added)
    for name in ("modules.json", "1_Pooling", "config_sentence_transformers.json", "tokenizer.json"):
        source = base / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    if (base / "2_Normalize").is_dir():
        shutil.copytree(base / "2_Normalize", folder / "2_Normalize")
    with LLM(str(folder)) as llm, LLM(str(tmp_path / "merged")) as whole, LLM(str(base)) as plain:
        ours = [out.outputs.embedding for out in llm.embed(TEXTS, use_tqdm=False)]
        for other, differs in ((whole, False), (plain, True)):
            theirs = [out.outputs.embedding for out in other.embed(TEXTS, use_tqdm=False)]
            assert (worst_error(ours, theirs) > BATCH_LIMIT) == differs
    assert max(worst_error(a, b) for a, b in zip(ours, expected, strict=True)) <= REFERENCE_LIMIT


def test_an_adapter_may_bring_a_classifier(tiny: Tiny, tmp_path: Path) -> None:
    base = tiny("qwen3", num_labels=3)
    added = updates(load_file(base / "model.safetensors"), ("v_proj.weight",))
    inner = {name.replace("base_model.model.", "base_model.model.model."): tensor for name, tensor in added.items()}
    score = 0.2 * torch.randn(3, 60, generator=torch.Generator().manual_seed(6))
    folder = adapter(base, tmp_path / "adapter", {**inner, "base_model.model.score.weight": score})
    full = merged(base, tmp_path / "merged", added)
    state = {f"model.{name}": tensor for name, tensor in load_file(full / "model.safetensors").items()}
    save_file({**state, "score.weight": score}, full / "model.safetensors", metadata={"format": "pt"})
    reference = Reference(full)
    with LLM(str(folder), convert="classify") as llm:
        outs = llm.classify(TEXTS, use_activation=False, use_tqdm=False)
    assert (
        worst_error([out.outputs.probs for out in outs], [reference.logits(text) for text in TEXTS]) <= REFERENCE_LIMIT
    )


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "another kind": ({"peft_type": "IA3"}, CheckpointError, "peft_type='IA3'"),
    "magnitudes": ({"use_dora": True}, CheckpointError, "use_dora=True.*Merge the adapter"),
    "another beginning": ({"init_lora_weights": "pissa"}, CheckpointError, "init_lora_weights='pissa'"),
    "no base": ({"base_model_name_or_path": None}, CheckpointError, "names the base model None"),
    "a base that is gone": ({"base_model_name_or_path": "/nowhere/base"}, ModelNotFound, "/nowhere/base"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_adapter_says_and_we_do_not_do_stops_the_start(tiny: Tiny, tmp_path: Path, name: str) -> None:
    says, error, message = REFUSED[name]
    added = updates(load_file(tiny("llama") / "model.safetensors"), ("q_proj.weight",))
    with pytest.raises(error, match=message):
        LLM(str(adapter(tiny("llama"), tmp_path / "m", added, **says)))


def test_adapters_that_do_not_fit_stop_the_start(tiny: Tiny, tmp_path: Path) -> None:
    base = tiny("llama")
    added = updates(load_file(base / "model.safetensors"), ("q_proj.weight",))
    first = next(iter(added))
    lone = {first.replace("q_proj", "r_proj"): added[first].clone()}
    unknown = updates({"layers.9.self_attn.q_proj.weight": torch.zeros(60, 60)}, (".weight",))
    narrow = updates({"norm.weight": torch.zeros(60, 60)}, (".weight",))
    cases = (
        (lone, r"has \['A'\] of layers.0.self_attn.r_proj alone"),
        (unknown, "updates 1 tensors that its"),
        (narrow, r"is \[60, 60\], its weight \[60\]"),
        ({"base_model.model.extra.weight": torch.zeros(3)}, r"1 without a use here: extra\.weight"),
        ({"base_model.model.layers.0.norm.weight": torch.ones(60)}, r"1 without a use here: layers\.0\.norm\.weight"),
    )
    for number, (changes, message) in enumerate(cases):
        with pytest.raises(WeightMismatch, match=message):
            backbone(adapter(base, tmp_path / str(number), {**added, **changes}))
    both = adapter(base, tmp_path / "both", added)
    shutil.copy(base / "model.safetensors", both)
    with pytest.raises(CheckpointError, match="whole weights lie beside it"):
        LLM(str(both))
    with pytest.raises(ConfigError, match="transformers is to run its base model"):
        LLM(str(adapter(base, tmp_path / "other", added)), model_impl="transformers")


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_jina_embeddings_v5_is_read_with_the_adapter_of_a_task(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    base = tiny("qwen3") if kind == "decoder" else foreign("eurobert", tmp_path / "base")
    state = load_file(base / "model.safetensors")
    tasks = {"retrieval": ("q_proj.weight",), "clustering": ("down_proj.weight", "k_proj.weight")}
    folder = Path(shutil.copytree(base, tmp_path / "v5"))
    says = {"model_type": "jina_embeddings_v5", "architectures": ["JinaEmbeddingsV5Model"], "task_names": [*tasks]}
    own = {"is_decoder": False} if kind == "encoder" else {}
    write_json(folder / "config.json", {**read_json(base / "config.json"), **says, **own})
    inputs = ragged_ids(base, (3, 17))
    for task, ends in tasks.items():
        added = updates(state, ends)
        adapter(base, folder / "adapters" / task, added)
        expected = reference_hidden(merged(base, tmp_path / task, added), inputs)
        with LLM(str(folder), hf_overrides=None if task == "retrieval" else {"jina_task": task}) as llm:
            prompts = [{"prompt_token_ids": ids} for ids, _ in inputs]
            outs = llm.encode(prompts, pooling_task="token_embed", use_activation=False, use_tqdm=False)
            assert (llm.recipe.causal, llm.recipe.model_impl) == (kind == "decoder", "cenote")
        for out, rows in zip(outs, expected, strict=True):
            assert worst_error(out.outputs.data, rows) <= REFERENCE_LIMIT
    with pytest.raises(CheckpointError, match=r"jina_task='poetry'.*clustering, retrieval"):
        LLM(str(folder), hf_overrides={"jina_task": "poetry"})


def test_an_adapter_counts_in_the_fingerprint(tiny: Tiny, tmp_path: Path) -> None:
    base = tiny("llama")
    added = updates(load_file(base / "model.safetensors"), ("q_proj.weight",))
    folders = [base, *(adapter(base, tmp_path / str(alpha), added, lora_alpha=alpha) for alpha in (3, 4))]
    recipes = [recipe_of(folder) for folder in folders]
    machine = MachineSettings(device="cpu")
    assert len({fingerprint(recipe, recipe.transformer, machine) for recipe in recipes}) == 3
