"""Stored tensors into a model: streamed, renamed by data, and audited.

Every parameter is filled exactly once, and every stored tensor is used, or ignored by name for a stated reason;
anything else stops the start with the list. Where the stored precision is the wanted one, a tensor stays the file's
memory map and costs no memory of its own.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch
from safetensors import safe_open
from torch import Tensor, nn

from . import lora
from .checkpoint import Checkpoint
from .errors import CheckpointError, WeightMismatch
from .layers.linear import Linear

# Names that TensorFlow's checkpoints gave to layer norms, still found in old folders.
_LEGACY: Final = ((r"\.gamma$", ".weight"), (r"\.beta$", ".bias"))
_MOST_LISTED = 12
# Anything else is a quantised weight, whose scales lie elsewhere.
_PLAIN_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def stored_tensors(checkpoint: Checkpoint, folder: str = "") -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of the weights in `folder` of the checkpoint, one at a time, an adapter merged into them.

    Safetensors are preferred to `pytorch_model.bin`, which is read without running any code in it.

    Raises:
        CheckpointError: There are no weights, or an index names a file that is not there, or as `lora.merged`.
        WeightMismatch: As `lora.merged`.
    """
    tensors = _stored_tensors(checkpoint, folder)
    return tensors if folder or checkpoint.over is None else lora.merged(tensors, checkpoint)


def _stored_tensors(checkpoint: Checkpoint, folder: str) -> Iterator[tuple[str, Tensor]]:
    for path in weight_files(checkpoint, folder):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  # not a dict: it has no __iter__
                    yield name, file.get_tensor(name)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            yield from loaded.items()


def stored_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    """The tensor of that name.

    Raises:
        WeightMismatch: There is none.
    """
    for stored, tensor in stored_tensors(checkpoint):
        if stored == name:
            return tensor
    raise WeightMismatch(f"{checkpoint.name} has no tensor {name}.", fix="Fetch the checkpoint again.")


def stored_file(checkpoint: Checkpoint, name: str) -> dict[str, Tensor]:
    """Names and tensors of one pickled file, which is read without running any code in it.

    Raises:
        CheckpointError: It holds something else.
    """
    try:
        loaded = torch.load(checkpoint.folder / name, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _no_tensors(checkpoint, name) from error
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise _no_tensors(checkpoint, name)
    return loaded


def _no_tensors(checkpoint: Checkpoint, name: str) -> CheckpointError:
    return CheckpointError(f"{name} of {checkpoint.name} is no file of tensors.", fix="Fetch it again.")


def stored_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """Shape of each stored tensor."""
    return {name: tuple(tensor.shape) for name, tensor in stored_tensors(checkpoint)}


class Stored:
    """The stored tensors in one pass, those of a head set aside.

    Args:
        tensors: Names and tensors.
        prefixes: Of the family, stripped from the names of the head's tensors.
        names: How the names of the head's tensors begin.
        rows: Names of matrices, without prefix -> the rows of them that are kept too.

    Attributes:
        head: Name, without prefix -> tensor of the head; filled while `backbone` runs.
        kept: The same of the matrices in `rows`, those rows only.
    """

    def __init__(
        self,
        tensors: Iterable[tuple[str, Tensor]],
        prefixes: Sequence[str],
        names: Sequence[str],
        rows: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        self.head: dict[str, Tensor] = {}
        self.kept: dict[str, Tensor] = {}
        self._tensors, self._prefixes, self._rows = tensors, prefixes, rows
        self._names = tuple(names)

    def backbone(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors of everything else."""
        for stored, tensor in self._tensors:
            name = _renamed(stored, self._prefixes, ())
            if name in self._rows:
                self.kept[name] = tensor[list(self._rows[name])].float()
            if self._names and name.startswith(self._names):
                self.head[name] = tensor
            else:
                yield stored, tensor


def weight_files(checkpoint: Checkpoint, folder: str = "") -> list[Path]:
    """The files that hold the weights, in order."""
    prefix = f"{folder}/" if folder else ""
    for single in ("model.safetensors", "pytorch_model.bin"):
        index = checkpoint.json(f"{prefix}{single}.index.json")
        if index is not None:
            return _sharded(checkpoint, prefix, index)
        path = checkpoint.path(prefix + single)
        if path is not None:
            return [path]
    raise CheckpointError(
        f"{checkpoint.name} has no weights in {folder or 'its folder'}.",
        allowed="model.safetensors or pytorch_model.bin, whole or in shards with an index.",
        fix="Fetch the missing files.",
    )


def _sharded(checkpoint: Checkpoint, prefix: str, index: dict[str, dict[str, str]]) -> list[Path]:
    names = list(dict.fromkeys(index["weight_map"].values()))
    missing = [name for name in names if checkpoint.path(prefix + name) is None]
    if missing:
        raise CheckpointError(f"The index of {checkpoint.name} names {missing}, which is not there.", fix="Fetch it.")
    return [checkpoint.folder / (prefix + name) for name in names]


def _stored_names(checkpoint: Checkpoint) -> set[str]:
    names: set[str] = set()
    for path in weight_files(checkpoint):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                names.update(file.keys())
        else:
            names.update(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
    return names


def stores(checkpoint: Checkpoint, prefixes: Sequence[str], name: str) -> bool:
    """Whether a tensor called `name`, before it the family's prefix or nothing, is among the weights."""
    return any(_renamed(stored, prefixes, ()) == name for stored in _stored_names(checkpoint))


def stored_dtype(checkpoint: Checkpoint) -> str:
    """The precision of most of the stored weights: float32, float16 or bfloat16."""
    sizes: dict[str, int] = {}
    for path in weight_files(checkpoint):
        if path.suffix != ".safetensors":
            named = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype")
            return str(named) if named in ("float16", "bfloat16") else "float32"
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                sizes[entry["dtype"]] = sizes.get(entry["dtype"], 0) + end - begin
    most = max(sizes, key=lambda dtype: sizes[dtype], default="F32")
    return {"F16": "float16", "BF16": "bfloat16"}.get(most, "float32")


@dataclass
class _Slot:
    """Where one stored tensor goes: a parameter, or rows `start` to `stop` of one.

    `parts` are the names of those rows, where a parameter may be stored as one tensor or as several.
    """

    module: nn.Module
    leaf: str
    rows: tuple[int, int] | None
    shape: tuple[int, ...]
    parts: tuple[str, ...] = ()


@dataclass
class _Audit:
    filled: set[str] = field(default_factory=set)
    unused: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)


def load(
    model: nn.Module,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    prefixes: Sequence[str] = (),
    rename: Sequence[tuple[str, str]] = (),
    ignored: Sequence[tuple[str, str]] = (),
    dtype: torch.dtype,
    device: torch.device,
    name: str = "the checkpoint",
) -> None:
    """Fill `model`, which was built on the meta device.

    Args:
        tensors: Stored names and tensors.
        prefixes: Stripped from stored names where they are there.
        rename: Patterns and replacements, each applied in turn.
        ignored: Patterns of stored names, without prefix, that are of no use, with the reason.
        dtype, device: What the parameters become.
        name: Of the checkpoint, for the message.

    Raises:
        WeightMismatch: Something is left over, left empty, filled twice with different values, of another shape or
            quantised.
    """
    slots = _slots(model)
    audit = _Audit()
    for stored, tensor in tensors:
        target = _renamed(stored, prefixes, rename)
        if target not in slots:
            if not any(re.search(pattern, _stripped(stored, prefixes)) for pattern, _ in ignored):
                audit.unused.append(stored)
        elif not audit.filled.isdisjoint((target, *slots[target].parts)):
            if not _is_there(slots[target], tensor):
                audit.twice.append(stored)
        elif tuple(tensor.shape) != slots[target].shape:
            audit.shapes.append(f"{stored} is {list(tensor.shape)}, config.json says {list(slots[target].shape)}")
        elif tensor.dtype not in _PLAIN_DTYPES:
            audit.kinds.append(f"{stored} is {str(tensor.dtype).removeprefix('torch.')}")
        else:
            audit.filled.update((target, *slots[target].parts))
            _put(slots[target], tensor, dtype, device)
    needed = {target for target, slot in slots.items() if not slot.parts}
    _report(audit, sorted(needed - audit.filled), name)


def _stripped(stored: str, prefixes: Sequence[str]) -> str:
    for prefix in prefixes:
        if stored.startswith(prefix):
            return stored[len(prefix) :]
    return stored


def _renamed(stored: str, prefixes: Sequence[str], rename: Sequence[tuple[str, str]]) -> str:
    name = _stripped(stored, prefixes)
    for pattern, replacement in (*_LEGACY, *rename):
        name = re.sub(pattern, replacement, name)
    return name


def _slots(model: nn.Module) -> dict[str, _Slot]:
    slots: dict[str, _Slot] = {}
    for path, module in model.named_modules():
        dot = f"{path}." if path else ""
        for leaf, parameter in module.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            parts = module.parts if isinstance(module, Linear) else {}
            start = 0
            for part, size in parts.items():
                slots[f"{dot}{part}.{leaf}"] = _Slot(module, leaf, (start, start + size), (size, *shape[1:]))
                start += size
            slots[f"{dot}{leaf}"] = _Slot(module, leaf, None, shape, tuple(f"{dot}{part}.{leaf}" for part in parts))
    return slots


def _put(slot: _Slot, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    if slot.rows is None:
        value = tensor.to(device=device, dtype=dtype)
        setattr(slot.module, slot.leaf, nn.Parameter(value, requires_grad=False))
        return
    whole = getattr(slot.module, slot.leaf)
    if whole.is_meta:
        whole = nn.Parameter(torch.empty(whole.shape, dtype=dtype, device=device), requires_grad=False)
        setattr(slot.module, slot.leaf, whole)
    whole.data[slot.rows[0] : slot.rows[1]] = tensor


def _is_there(slot: _Slot, tensor: Tensor) -> bool:
    """Whether `slot` is filled with `tensor` already: old files store tied weights under each of their names."""
    filled = getattr(slot.module, slot.leaf)
    filled = filled if slot.rows is None else filled[slot.rows[0] : slot.rows[1]]
    return filled.shape == tensor.shape and torch.equal(filled, tensor.to(filled.device, filled.dtype))


def _report(audit: _Audit, empty: list[str], name: str) -> None:
    problems = (
        ("without a use here", audit.unused),
        ("stored twice", audit.twice),
        ("of another shape", audit.shapes),
        ("in a precision that is not served", audit.kinds),
        ("needed but not stored", empty),
    )
    found = [f"{len(names)} {what}: {_listed(names)}" for what, names in problems if names]
    if found:
        raise WeightMismatch(
            f"The weights of {name} do not fit its architecture; {'; '.join(found)}.",
            allowed="Every stored tensor is used and every parameter is filled, or the numbers would be wrong.",
            fix="Fetch the checkpoint again, or name one whose config.json and weights belong together.",
            param="model",
        )


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
