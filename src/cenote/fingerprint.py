"""One short name for all that decides a model's vectors, so that an index can tell whether it still fits. No torch.

Two models with the same fingerprint answer the same request alike, up to rounding. It is a hash of the weights and the
tokenizer's files, of `config.json`, and of what was decided about reading them; names, folders and speed do not count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .checkpoint import ADAPTER_CONFIG, Checkpoint
from .config import MachineSettings
from .m3 import FILES

if TYPE_CHECKING:
    from .recipe import Recipe

log = logging.getLogger(__name__)

_DIGITS: Final = 32
_DECIDED: Final = (
    "convert",
    "causal",
    "normalize",
    "max_len",
    "do_lower_case",
    "prompts",
    "default_prompt_name",
    "pair_template",
    "dimensions",
    "chunks",
    "chunk_overlap",
)
# Records, each of which a checkpoint may lack.
_RECORDS: Final = ("classifier", "late_interaction", "masked_lm", "sparse")
# Keys of config.json that say where it comes from, or how fast it is to run.
_SAY_NOTHING: Final = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache")
_TOKENIZER_FILES: Final = ("*token*.json", "vocab*", "merges.txt", "*.model", "chat_template.jinja")
_WEIGHTS: Final = ("*.safetensors", "*.bin")


class Fingerprint:
    """The fingerprint of one model; reading its weights once more is left to a thread, and to the first who asks.

    Args:
        recipe: What was decided about it.
        words: Files of its tokenizer.
        machine: Decides the precision that it runs in.
    """

    def __init__(self, recipe: Recipe, words: Checkpoint, machine: MachineSettings) -> None:
        self._parts = (recipe, words, machine)
        self._future: Future[str] = Future()
        self._lock = threading.Lock()
        self._begun = False
        self._found: str | None = None

    def known(self) -> str | None:
        """32 hexadecimal digits once they are known; the first call begins the work and waits for nothing."""
        if self._found is None:
            with self._lock:
                begun, self._begun = self._begun, True
            if not begun:
                threading.Thread(target=self._find, name="cenote-fingerprint", daemon=True).start()
        return self._found

    def value(self) -> str:
        """32 hexadecimal digits; waits for them.

        Raises:
            OSError: A file of the model is gone.
        """
        self.known()
        return self._future.result()

    def _find(self) -> None:
        try:
            self._found = fingerprint(*self._parts)
            self._future.set_result(self._found)
        except BaseException as error:
            log.warning("%s has no fingerprint: %s.", self._parts[0].name, error)
            self._future.set_exception(error)


def fingerprint(recipe: Recipe, words: Checkpoint, machine: MachineSettings) -> str:
    """32 hexadecimal digits; arguments as of `Fingerprint`.

    Raises:
        OSError: A file of the model is gone.
    """
    if recipe.routing is not None:
        parts = {name: fingerprint(one, one.transformer, machine) for name, one in recipe.routes.items()}
        return _short({"routes": parts, "routing": asdict(recipe.routing)})
    from .device import plan

    raw = recipe.transformer.config
    made = () if recipe.sparse is None else (recipe.sparse.step,)
    folders = {step.path for step in (*recipe.steps, *made) if step.path}
    said = {
        "weights": [_hash(path) for folder in ("", *sorted(folders)) for path in _weights(recipe, folder)],
        "tokenizer": {
            path.name: _hash(path) for folder in reversed(words.folders) for path in _matching(folder, _TOKENIZER_FILES)
        },
        # A key that is null counts as missing everywhere.
        "config": {key: value for key, value in raw.items() if value is not None and key not in _SAY_NOTHING},
        "steps": [[type(step).__name__, _telling(step)] for step in recipe.steps],
        **{name: None if (part := getattr(recipe, name)) is None else _telling(part) for name in _RECORDS},
        "dtype": str(plan(machine, recipe.dtype, recipe.stored_dtype).dtype),
        **{name: getattr(recipe, name) for name in _DECIDED},
        "beside": [_hash(recipe.transformer.folder / name) for name in FILES] if recipe.multi_vector else None,
        "words": recipe.sparse.words.weights if recipe.sparse and recipe.sparse.words else None,
    }
    if recipe.transformer.over is not None:
        said["adapter"] = _hash(recipe.transformer.over / ADAPTER_CONFIG)
    if machine.quantization != "none":
        said["quantization"] = machine.quantization
    return _short(said)


def _short(said: Mapping[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _telling(record: Any) -> dict[str, Any]:
    """Fields of a record that are not as they are without a word, so that a new field leaves old fingerprints alone."""
    values = {f.name: (getattr(record, f.name), f.default) for f in fields(record) if f.name != "path"}
    return {name: value for name, (value, default) in values.items() if value != default}


def _weights(recipe: Recipe, folder: str) -> list[Path]:
    """Weights of the backbone, or of the module in `folder`; pickled ones count where there are no others."""
    wheres = (recipe.checkpoint.folder / folder,) if folder else recipe.transformer.folders
    found = ([list(_matching(where, (pattern,))) for pattern in _WEIGHTS] for where in wheres)
    return [path for kinds in found for path in next(filter(None, kinds), [])]


def _matching(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    yield from sorted(found)


def _hash(path: Path) -> str:
    """SHA-256 of a file, remembered by its path, size and time of change."""
    real = path.resolve()
    state = real.stat()
    name = hashlib.sha256(f"{real}|{state.st_size}|{state.st_mtime_ns}".encode()).hexdigest()
    try:
        kept = _remembered() / name
        if kept.is_file():
            return kept.read_text(encoding="ascii")
    except OSError as error:
        log.debug("Hashes of files cannot be remembered: %s.", error)
        kept = None
    with real.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if kept is not None:
        _remember(kept, found)
    return found


def _remembered() -> Path:
    """Where the hub's library lets others keep such things, beside its own cache."""
    from huggingface_hub import cached_assets_path

    return cached_assets_path("cenote", namespace="sha256")


def _remember(kept: Path, found: str) -> None:
    # Written beside and moved, so that nobody reads half of one.
    beside = kept.with_name(f"{kept.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        beside.write_text(found, encoding="ascii")
        beside.replace(kept)
    except OSError as error:
        log.debug("The hash of a file cannot be remembered: %s.", error)
