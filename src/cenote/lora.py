"""Low-rank updates of weights, as PEFT stores them beside a base model, merged when the weights are read.

Source: Hu et al. 2021 (arXiv 2106.09685); with a scale by the root of the rank, Kalajdzievski 2023 (arXiv 2312.03732).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import Tensor

from .checkpoint import ADAPTER_CONFIG, Checkpoint
from .errors import CheckpointError, WeightMismatch
from .hf import Raw

# What its config could also say. Each would change the numbers, so anything that is set stops the start.
_UNSERVED: Final = (
    *("use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora", "trainable_token_indices"),
    *("target_parameters", "layer_replication", "alora_invocation_tokens", "arrow_config", "lora_ga_config"),
    *("kasa_config", "monteclora_config", "velora_config", "corda_config"),
)
# How the update began, where that left the base model as it was; others take something out of it.
_BEGUN: Final = (True, False, "default", "gaussian", "orthogonal", "eva")
_PART: Final = re.compile(r"(.*)\.lora_(?:(A|B)\.weight|embedding_(A|B))")
_MOST_LISTED: Final = 6


@dataclass
class _Update:
    """Of one tensor: `scale` times the product of B and A is added to it, or `whole` takes its place."""

    parts: dict[str, Tensor] = field(default_factory=dict)
    scale: float = 1.0
    of_table: bool = False
    whole: Tensor | None = None

    def on(self, stored: Tensor) -> Tensor:
        """The tensor in its place, float32 where it is a sum."""
        if self.whole is not None:
            return self.whole
        added = self.parts["B"].float() @ self.parts["A"].float()
        added = added.T if self.of_table else added
        if added.shape != stored.shape:
            raise WeightMismatch(f"An update of an adapter is {list(added.shape)}, its weight {list(stored.shape)}.")
        return stored.float() + self.scale * added


def merged(tensors: Iterator[tuple[str, Tensor]], checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """The stored tensors of a base model with the updates of an adapter in them, and what the adapter adds of its own.

    Args:
        tensors: Stored names and tensors of the base model.
        checkpoint: Whose adapter it is.

    Raises:
        CheckpointError: The adapter is of another kind than is served, or lacks its files.
        WeightMismatch: An update is incomplete, or belongs to no stored tensor or to one of another shape.
    """
    updates = _read(checkpoint)
    for name, tensor in tensors:
        key = _key_of(name, updates)
        yield name, tensor if key is None else updates.pop(key).on(tensor)
    for key in [key for key, update in updates.items() if update.whole is not None]:
        whole = updates.pop(key).whole
        assert whole is not None
        yield key, whole
    if updates:
        raise WeightMismatch(
            f"The adapter of {checkpoint.name} updates {len(updates)} tensors that its base model does not store: "
            f"{', '.join(sorted(updates)[:_MOST_LISTED])}.",
            fix="Name the base model that it was trained on in its adapter_config.json.",
            param="model",
        )


def _read(checkpoint: Checkpoint) -> dict[str, _Update]:
    """Name of a tensor of the base model -> its update."""
    raw = checkpoint.json(ADAPTER_CONFIG)
    config = Raw(raw if isinstance(raw, dict) else {})
    _check(config, checkpoint.name)
    updates: dict[str, _Update] = {}
    for stored, tensor in _tensors(checkpoint).items():
        name = stored.removeprefix("base_model.model.").replace(".modules_to_save", "")
        part = _PART.fullmatch(name)
        if part is None:
            updates.setdefault(name.replace(".base_layer.", "."), _Update()).whole = tensor
            continue
        update = updates.setdefault(f"{part[1]}.weight", _Update())
        update.parts[part[2] or part[3]], update.of_table = tensor, part[3] is not None
    for name, update in updates.items():
        if update.whole is None:
            _complete(name.removesuffix(".weight"), update, config)
    return updates


def _complete(module: str, update: _Update, config: Raw) -> None:
    if set(update.parts) != {"A", "B"}:
        raise WeightMismatch(f"The adapter has {sorted(update.parts)} of {module} alone.", fix="Fetch it again.")
    patterns: Mapping[str, Any] = config.value("alpha_pattern", {})
    own = (alpha for pattern, alpha in patterns.items() if re.match(rf"(.*\.)?({pattern})$", module))
    rank = len(update.parts["A"])
    alpha = float(next(own, config.number("lora_alpha", 8)))
    update.scale = alpha / (math.sqrt(rank) if config.value("use_rslora", False) else rank)


def _check(config: Raw, name: str) -> None:
    config.must_be("peft_type", "LORA")
    wrong = {key: config.raw[key] for key in _UNSERVED if config.raw.get(key)}
    begun = config.raw.get("init_lora_weights", True)
    if begun not in _BEGUN:
        wrong["init_lora_weights"] = begun
    if wrong:
        raise CheckpointError(
            f"{ADAPTER_CONFIG} of {name} says {', '.join(f'{key}={value!r}' for key, value in wrong.items())}.",
            allowed="Plain low-rank updates are merged here.",
            fix="Merge the adapter into its base model with PEFT, and name the folder of the result.",
        )


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        path = checkpoint.path(name)
        if path is not None:
            is_safe = path.suffix == ".safetensors"
            return load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    raise CheckpointError(f"{checkpoint.name} has no adapter_model.safetensors.", fix="Fetch it again.")


def _key_of(name: str, updates: Mapping[str, _Update]) -> str | None:
    """The update of a stored tensor; one of the two names may begin with the name of the model inside a class."""
    if name in updates:
        return name
    for key in updates:
        longer, shorter = (name, key) if len(name) > len(key) else (key, name)
        if longer.endswith(f".{shorter}") and "." not in longer[: -len(shorter) - 1]:
            return key
    return None
