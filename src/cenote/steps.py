"""The steps after the transformer that a checkpoint's `modules.json` can ask for, as plain records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


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
        bias: Whether it has one; None where that is as the checkpoint stores it.
        row: Of the first stage: which token of a text it reads.
    """

    name: str
    activation: str | None = None
    bias: bool | None = True
    row: Literal["first", "last"] = "first"


@dataclass(frozen=True, slots=True)
class Nature:
    """What a backbone is beyond its sizes; the defaults are an encoder's.

    Args:
        causal: Whether a token sees no later one.
        causal_source: Where that stands.
        pooled: Mode of `layers.pooling.POOLS` where the checkpoint has no `modules.json`.
        why_not_float16: Why the family is not to be computed in float16, or None.
    """

    causal: bool = False
    causal_source: str = "the architecture"
    pooled: Literal["cls", "last"] = "cls"
    why_not_float16: str | None = None


Step: TypeAlias = Pooling | Dense | LayerNorm | Normalize
