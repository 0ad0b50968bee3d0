"""The ways a model's weights are found lying in a folder: one file, shards, pickles, old names, the hub's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from transformers import MODEL_MAPPING, AutoConfig

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
POSITION_EMBEDDINGS = "embeddings.position_embeddings.weight"
LEGACY_NORM_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
NUM_SHARDS = 3


@dataclass(frozen=True)
class Saved:
    """How weights lie in a folder.

    Args:
        format: One safetensors file, several with an index, or `pytorch_model.bin`, one or several.
        prefix: Names as saved, with the base model's prefix added ("bert."), or with it taken away.
        legacy_norms: The oldest names of LayerNorm, gamma and beta.
        position_ids: An `embeddings.position_ids` tensor (int64 [1, positions]), as saves of 2020 to 2023 carry.
    """

    format: Literal["safetensors", "sharded", "bin", "sharded_bin"] = "safetensors"
    prefix: Literal["keep", "add", "strip"] = "keep"
    legacy_norms: bool = False
    position_ids: bool = False


PLAIN = Saved()


def restyle(folder: Path, saved: Saved) -> Path:
    """Rewrite the single `model.safetensors` at the root of `folder` as `saved` says, and return `folder`.

    Raises:
        ValueError: The names already have, or do not have, the prefix.
    """
    if saved == PLAIN:
        return folder
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if saved.prefix != "keep":
        state = _with_prefix(state, _base_prefix(folder), add=saved.prefix == "add")
    if saved.position_ids:
        state |= _position_ids(state)
    if saved.legacy_norms:
        state = {_legacy_name(name): tensor for name, tensor in state.items()}
    total_bytes = sum(tensor.nbytes for tensor in state.values())
    save_torch_state_dict(
        state,
        folder,
        max_shard_size=total_bytes // NUM_SHARDS if saved.format.startswith("sharded") else total_bytes + 1,
        safe_serialization=not saved.format.endswith("bin"),
    )
    return folder


def _base_prefix(folder: Path) -> str:
    config = AutoConfig.from_pretrained(folder)
    model_class: Any = MODEL_MAPPING[type(config)]
    return f"{model_class.base_model_prefix}."


def _with_prefix(state: dict[str, torch.Tensor], prefix: str, *, add: bool) -> dict[str, torch.Tensor]:
    if any(name.startswith(prefix) for name in state) == add:
        raise ValueError(f"The names {'already' if add else 'do not'} start with {prefix!r}; keep them as they are.")
    if add:
        return {prefix + name: tensor for name, tensor in state.items()}
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def _position_ids(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    stem = next(name for name in state if name.endswith(WORD_EMBEDDINGS)).removesuffix(WORD_EMBEDDINGS)
    table = state.get(stem + POSITION_EMBEDDINGS)
    # Families without a table of positions saved the counter all the same.
    num_positions = 70 if table is None else table.shape[0]
    return {f"{stem}embeddings.position_ids": torch.arange(num_positions).unsqueeze(0)}


def _legacy_name(name: str) -> str:
    for new, old in LEGACY_NORM_NAMES.items():
        if name.endswith(new):
            return name.removesuffix(new) + old
    return name


def hub_cache(folder: Path, cache: Path, *, repo_id: str = "tests/tiny", revision: str = "0123abcd" * 5) -> Path:
    """Lay `folder` out as the hub's cache does and return the snapshot, a folder of links into a blob store.

    An empty folder is lost, as git loses it. `folder` stays as it is.

    Args:
        folder: A finished model folder.
        cache: What `HF_HUB_CACHE` would name.
        repo_id: Owner and name.
        revision: The commit, 40 hexadecimal digits; `refs/main` points at it.
    """
    repo = cache / f"models--{repo_id.replace('/', '--')}"
    snapshot = repo / "snapshots" / revision
    for directory in (repo / "blobs", repo / "refs", snapshot):
        directory.mkdir(parents=True, exist_ok=True)
    (repo / "refs" / "main").write_text(revision, encoding="utf-8")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        blob = repo / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copyfile(path, blob)
        link = snapshot / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, indented."""
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
