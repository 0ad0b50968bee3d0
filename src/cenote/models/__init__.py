"""Architectures: one file each, found by the `model_type` of `config.json`.

A file gives `Config.from_hf(raw)`, `Model(config)` whose `forward(packed)` returns `Hidden`, and as data `PREFIXES`
(stripped from the names of stored tensors), `RENAME` (the rest of the way to our names), `IGNORED` (stored tensors
that are of no use here, each with the reason) and `HEADS` (the classifier of whole texts, `sequence`, and of tokens,
`token`; a function of the config where that says more of them); a language model also `LM_HEAD` (names of its head
and of the table of words that the head may be tied to) and `REWARDS` (classes of reward models and their heads).
Where there is no transformer it may also say that it `STORES` no tensors, that it is `SIZED_BY_WEIGHTS` (so `from_hf`
finds the shapes of the stored tensors under `shapes`), and by `gathered(tensors, config)` how stored tensors become
others. A family whose checkpoints say another's `model_type` tells them by `claims(raw)`. Nothing else in Cenote knows
an architecture.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, Self, cast

from torch import Tensor

from .. import plugins
from ..errors import UnknownArchitecture
from ..layers.blocks import Hidden
from ..layers.packed import Packed
from ..steps import Nature, Reward, Stages

ALIASES: Final[Mapping[str, str]] = {
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "new": "gte",
    "model2vec": "static_embedding",
    "mt5": "t5",
    "umt5": "t5",
    "jina_embeddings_v3": "xlm_roberta_flash",
    "llama_bidirec": "llama",
}
"""Checkpoints that are another family under a new name: `model_type` -> file."""

BORROWED: Final[Mapping[str, tuple[str, ...]]] = {"bert": ("jina_bert",), "xlm-roberta": ("xlm_roberta_flash",)}
"""`model_type` -> files of other families that call themselves so; `claims(raw)` of each knows its own."""


class ModelConfig(Protocol):
    """What every architecture's config gives; frozen.

    Attributes:
        hidden_size: `D` of the last hidden state.
        vocab_size: Rows of the table of words; every token id is below it.
        position_limit: Longest sequence that the positions allow, or None where there is no such limit.
        nature: What the backbone is beyond its sizes.
    """

    @property
    def hidden_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def position_limit(self) -> int | None: ...
    @property
    def nature(self) -> Nature: ...
    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`. The only place with defaults for missing keys.

        Raises:
            CheckpointError: A key that has no default is missing, or a value is not supported.
        """


class Model(Protocol):
    """A backbone: token ids to hidden states."""

    def __call__(self, packed: Packed) -> Hidden: ...


class Architecture(Protocol):
    """The contract of a file in this package."""

    Config: type[ModelConfig]
    Model: Any
    PREFIXES: Sequence[str]
    RENAME: Sequence[tuple[str, str]]
    IGNORED: Sequence[tuple[str, str]]
    HEADS: Mapping[str, Stages] | Callable[[Any], Mapping[str, Stages]]
    LM_HEAD: tuple[str, str]


def heads(architecture: Architecture, config: ModelConfig) -> Mapping[str, Stages]:
    """The classifiers that the checkpoints of an architecture can have."""
    given = architecture.HEADS
    return given(config) if callable(given) else given


def reward(architecture: Architecture, name: str) -> Reward | None:
    """The head of the reward model that the family calls `name`, or None where that is no reward model."""
    known: Mapping[str, Reward] = getattr(architecture, "REWARDS", {})
    return known.get(name)


def stores(architecture: Architecture) -> bool:
    """Whether the family has weights of its own."""
    return bool(getattr(architecture, "STORES", True))


def sized_by_weights(architecture: Architecture) -> bool:
    """Whether the sizes of the family stand in its weights alone."""
    return bool(getattr(architecture, "SIZED_BY_WEIGHTS", False))


def gathered(
    architecture: Architecture, tensors: Iterator[tuple[str, Tensor]], config: ModelConfig
) -> Iterator[tuple[str, Tensor]]:
    """The stored tensors, made into those that the family is filled with."""
    gather = getattr(architecture, "gathered", None)
    return tensors if gather is None else gather(tensors, config)


def find(raw: Mapping[str, Any]) -> Architecture:
    """The file that serves a `config.json`.

    Raises:
        UnknownArchitecture: There is none.
    """
    found = known(raw)
    if found is None:
        raise unknown(raw)
    return found


def known(raw: Mapping[str, Any]) -> Architecture | None:
    """As `find`, but None where there is none."""
    model_type = str(raw.get("model_type", ""))
    served = plugins.architectures()
    for other in BORROWED.get(model_type, ()):
        borrower = importlib.import_module(served[other])
        if borrower.claims(raw):
            return cast(Architecture, borrower)
    name = ALIASES.get(model_type, model_type)
    module = served.get(name) or served.get(name.replace("-", "_"))
    return None if module is None else cast(Architecture, importlib.import_module(module))


def unknown(raw: Mapping[str, Any], and_more: str = "") -> UnknownArchitecture:
    """The error for a `config.json` that nobody serves; `and_more` says who else is known."""
    return UnknownArchitecture(
        f"config.json says model_type={raw.get('model_type', '')!r} (architectures {raw.get('architectures')}).",
        allowed=f"Served are {', '.join(sorted({*plugins.architectures(), *ALIASES}))}{and_more}.",
        fix="Name a checkpoint of one of these families.",
        param="model",
    )
