"""Reading values of a Hugging Face `config.json` with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import CheckpointError

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
