"""Reading values of a Hugging Face `config.json` with errors that name the key, and what a user changes in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .errors import CheckpointError, ConfigError

Override: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""A stored `config.json` to the one that counts."""

_NO_DEFAULT = object()

# Names that `config.json` uses for activations -> ours. What is not listed stops the start.
ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}


def sees_all(raw: Mapping[str, Any]) -> str | None:
    """What of a `config.json` names a class whose tokens see all others though its family is causal; None for nothing.

    The makers' code makes it so; `config.json` has no key for it.
    """
    own = raw.get("auto_map")
    # GritLM generates as its family does, and embeds otherwise, by the same weights (arXiv 2402.09906).
    if is_gritlm(raw):
        return "config.json: architectures or auto_map, which name GritLM"
    names = {
        "model_type": raw.get("model_type") if raw.get("model_type") == "llama_bidirec" else "",
        "architectures": str((raw.get("architectures") or [""])[0]),
        "auto_map": str((own if isinstance(own, dict) else {}).get("AutoModel", "")).rpartition(".")[2],
    }
    found = (key for key, name in names.items() if name == "llama_bidirec" or "Bidirectional" in str(name))
    return next((f"config.json: {key}" for key in found), None)


def is_gritlm(raw: Mapping[str, Any]) -> bool:
    """Whether a language model was also trained to embed what comes after an instruction."""
    own = raw.get("auto_map")
    named = [*(raw.get("architectures") or []), *(own.values() if isinstance(own, dict) else [])]
    return any("gritlm" in str(name).lower() for name in named)


class Raw:
    """A raw config; every getter raises `CheckpointError` where a key is missing or has a value that cannot be."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def value(self, key: str, default: Any = _NO_DEFAULT) -> Any:
        """The value of `key`; null counts as missing."""
        value = self.raw.get(key)
        if value is not None:
            return value
        if default is _NO_DEFAULT:
            raise CheckpointError(f"config.json has no {key!r}.", fix="Fetch the checkpoint's config.json again.")
        return default

    def integer(self, key: str, default: Any = _NO_DEFAULT) -> int:
        """A whole number."""
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise CheckpointError(f"config.json says {key}={value!r}.", allowed="It is a whole number.")
        return value

    def size(self, key: str, default: Any = _NO_DEFAULT) -> int:
        """A whole number above 0."""
        value = self.integer(key, default)
        if value <= 0:
            raise CheckpointError(f"config.json says {key}={value}.", allowed="It is at least 1.")
        return value

    def divisor(self, key: str, *, of: int) -> int:
        """A whole number above 0 that divides `of`."""
        value = self.size(key)
        if of % value:
            raise CheckpointError(f"config.json says {key}={value}.", allowed=f"It divides {of}.")
        return value

    def number(self, key: str, default: Any = _NO_DEFAULT) -> float:
        """A number."""
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise CheckpointError(f"config.json says {key}={value!r}.", allowed="It is a number.")
        return float(value)

    def activation(self, key: str, default: Any = _NO_DEFAULT) -> str:
        """An activation, by our name for it."""
        name = self.value(key, default)
        if name not in ACTIVATIONS:
            raise CheckpointError(
                f"config.json says {key}={name!r}.", allowed=f"Known activations are {', '.join(ACTIVATIONS)}."
            )
        return ACTIVATIONS[name]

    def must_be(self, key: str, only: Any) -> None:
        """Check that `key` is absent or has the one value that is supported."""
        value = self.value(key, only)
        if value != only:
            raise CheckpointError(f"config.json says {key}={value!r}.", allowed=f"Only {only!r} is supported here.")

    def must_all_be(self, only: Mapping[str, Any]) -> None:
        """`must_be` for each key of `only`."""
        for key, value in only.items():
            self.must_be(key, value)


class _Config(dict[str, Any]):
    """A config whose keys are attributes too, as functions written for the reference expect them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__


def override_of(given: Mapping[str, Any] | Callable[[Any], Any] | None) -> Override | None:
    """What a user changes in `config.json`.

    Args:
        given: Keys and values, merged into the file, objects inside it too; or a function of the whole config, which
            gives back another or changes the one it got.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        return lambda stored: _labelled(_merged(stored, given), given)

    def call(stored: dict[str, Any]) -> dict[str, Any]:
        config = _Config(copy.deepcopy(stored))
        changed = given(config)
        changed = config if changed is None else changed
        if not isinstance(changed, Mapping):
            what = f"The function hf_overrides gave back {type(changed).__name__}."
            raise ConfigError(what, allowed="A config, or None for the one it got.", param="hf_overrides")
        return _labelled(dict(changed), {} if changed.get("num_labels") == stored.get("num_labels") else changed)

    return call


def _merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(stored)
    for key, value in given.items():
        inside = merged.get(key)
        if isinstance(inside, Mapping) and isinstance(value, Mapping):
            value = _merged(inside, value)
        merged[key] = value
    return merged


def _labelled(config: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    # As in transformers, another number of labels makes the names of the old ones void.
    named = config.get("id2label")
    if "num_labels" in given and isinstance(named, Mapping) and len(named) != given["num_labels"]:
        return {key: value for key, value in config.items() if key not in ("id2label", "label2id")}
    return config
