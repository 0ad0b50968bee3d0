"""The steps after the transformer that a checkpoint's `modules.json` can ask for, as plain records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Pooling:
    """Hidden states to one row.

    Args:
        modes: Names of `layers.pooling.POOLS`; several are put side by side in that order.
        include_prompt: Whether the tokens of a prompt count.
        path: Folder of the module, relative to the checkpoint.
    """

    modes: tuple[str, ...]
    include_prompt: bool = True
    path: str = ""


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer and an activation, on pooled rows; `activation` is a dotted class name of `torch.nn`."""

    in_features: int
    out_features: int
    bias: bool = True
    activation: str = "torch.nn.modules.activation.Tanh"
    path: str = ""


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer norm of pooled rows."""

    dimension: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Normalize:
    """Rows to unit length."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One linear layer of a classifier.

    Args:
        name: Of its stored tensors, without the family's prefix and without `.weight`.
        activation: One of `layers.linear.ACTIVATIONS`, or None.
    """

    name: str
    activation: str | None = None


Step: TypeAlias = Pooling | Dense | LayerNorm | Normalize
