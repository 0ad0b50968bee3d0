"""jina-embeddings-v3 as its makers save it, with adapters; for transformers, which lacks them, each merged by hand."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .saving import read_json, write_json

ADAPTERS: Final = {"retrieval.query": "Find for the question: ", "retrieval.passage": "Passage: ", "separation": ""}
RANK: Final = 2
ALPHA: Final = 3
_LAYERS: Final = ("mixer.Wqkv", "mixer.out_proj", "mlp.fc1", "mlp.fc2", "pooler.dense")
_TABLES: Final = ("word_embeddings", "token_type_embeddings")


def makers_config(native: dict[str, Any], **says: Any) -> dict[str, Any]:
    """What the makers' `config.json` says where that of transformers says `native`."""
    kept = {key: value for key, value in native.items() if key != "rope_parameters"}
    return {
        **kept,
        "model_type": "xlm-roberta",
        "architectures": ["XLMRobertaModel"],
        "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"},
        "position_embedding_type": "rotary",
        "rotary_emb_base": native["rope_parameters"]["rope_theta"],
        "use_flash_attn": True,
        "load_trained_adapters": True,
        "lora_adaptations": list(ADAPTERS),
        "lora_rank": RANK,
        "lora_alpha": ALPHA,
        "task_instructions": ADAPTERS,
        "matryoshka_dimensions": [16, 32, 60],
        **says,
    }


def with_adapters(source: Path, folder: Path) -> Path:
    """`source`, which transformers saved, as its makers save it: every weight with its updates."""
    shutil.copytree(source, folder)
    state: dict[str, Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if not layer.endswith((*_LAYERS, *_TABLES)):
            state[f"roberta.{name}"] = tensor
            continue
        stem = f"roberta.{layer}.parametrizations.weight"
        state[f"{stem}.original"] = tensor
        state[f"{stem}.0.lora_A"], state[f"{stem}.0.lora_B"] = updates(layer, tensor)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", makers_config(read_json(source / "config.json")))
    return folder


def merged(source: Path, folder: Path, adapter: str) -> Path:
    """`source` with the updates of one adapter added to its weights, for transformers."""
    shutil.copytree(source, folder)
    number = list(ADAPTERS).index(adapter)
    state: dict[str, Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        state[name] = tensor
        if layer.endswith((*_LAYERS, *_TABLES)):
            a, b = (part[number] for part in updates(layer, tensor))
            state[name] = tensor + ALPHA / RANK * (a @ b if layer.endswith(_TABLES) else b @ a)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def as_makers(plain: Path, folder: Path, into: Path) -> Path:
    """`plain`, a Sentence-Transformers folder, with the model of `folder` and the makers' own first module."""
    shutil.copytree(plain, into)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, into / name)
    listed = read_json(into / "modules.json")
    listed[0] |= {"type": "custom_st.Transformer", "kwargs": ["task"]}
    write_json(into / "modules.json", listed)
    return into


def updates(layer: str, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A and B of all adapters: `[N, R, in]` and `[N, out, R]`; of a table `[N, rows, R]` and `[N, R, size]`."""
    source = torch.Generator().manual_seed(zlib.crc32(layer.encode()))
    first, second = weight.shape
    shapes = ((first, RANK), (RANK, second)) if layer.endswith(_TABLES) else ((RANK, second), (first, RANK))
    a, b = (0.2 * torch.randn(len(ADAPTERS), *shape, generator=source) for shape in shapes)
    return a, b
