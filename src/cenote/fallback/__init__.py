"""Architectures that `transformers` itself runs (extra `transformers`): those without a file in `models`, or any.

This package stands where a file of `models` stands: `Config` is what is known of a checkpoint before its weights are
read, `HEADS` names the classifiers that transformers has for it, and `loading.load` gives the model, which runs groups
of exactly equal length, never padded. A classifier's logits are those of transformers' own class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ..checkpoint import Checkpoint
from ..errors import CheckpointError, ConfigError
from ..models import ModelConfig
from ..steps import Nature, Stages
from . import classes

if TYPE_CHECKING:
    from torch import nn

PREFIXES: Final[Sequence[str]] = ()
RENAME: Final[Sequence[tuple[str, str]]] = ()
IGNORED: Final[Sequence[tuple[str, str]]] = ()

Segments = Literal["given", "none"]
"""Whether the model is given segment ids: where it takes them and the tokenizer makes them."""


@dataclass(frozen=True, eq=False)
class Config:
    """What is known of a checkpoint that transformers runs, without its weights.

    Args:
        hidden_size, vocab_size, position_limit, nature: As in `models.ModelConfig`.
        hf: The config of transformers.
        trusts_code: Whether Python code of the checkpoint may run.
        segments: Whether the model is given segment ids.
    """

    hidden_size: int
    vocab_size: int
    position_limit: int | None
    nature: Nature
    hf: Any
    trusts_code: bool
    segments: Segments

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, native: ModelConfig | None, *, trusts_code: bool, makes_segments: bool
    ) -> Config:
        """Read the files of a transformer.

        Args:
            native: What Cenote's own file for the family says, whose defaults and limits then count; or None.
            trusts_code: Whether Python code of the checkpoint may run.
            makes_segments: Whether its tokenizer makes segment ids.

        Raises:
            UnknownArchitecture: transformers does not know it either.
            MissingExtra: transformers is not installed.
            ConfigError: It needs code of its own that may not run, or adapters.
            CheckpointError: It is quantised, or no model of texts.
        """
        if checkpoint.over is not None:
            raise ConfigError(
                f"{checkpoint.name} is an adapter, and transformers is to run its base model.",
                allowed="Cenote merges adapters into models of its own implementations.",
                fix="Merge it with PEFT, and name the folder of the result.",
                param="model_impl",
            )
        hf = classes.config_of(checkpoint, trusts_code=trusts_code)
        model = classes.empty(hf, "embed", trusts_code=trusts_code)
        module = classes.of_tokens(model)
        hidden_size = classes.hidden_size(hf)
        words: Any = model.get_input_embeddings()
        if hidden_size is None or getattr(words, "num_embeddings", None) is None:
            raise CheckpointError(
                f"{type(model).__name__} of transformers makes no hidden states of token ids ({checkpoint.name}).",
                allowed="Models of texts, or the encoders of those that have a decoder too.",
                param="model",
            )
        nature = _nature(hf) if native is None else _nature_of(native)
        return cls(
            hidden_size=hidden_size,
            vocab_size=int(words.num_embeddings),
            position_limit=_position_limit(hf, module) if native is None else native.position_limit,
            nature=nature,
            hf=hf,
            trusts_code=trusts_code,
            segments="given" if makes_segments and classes.takes(module, "token_type_ids") else "none",
        )


def HEADS(config: Config) -> Mapping[str, Stages]:  # noqa: N802  # the name that every architecture has
    """The kinds of classifiers that transformers has; their layers are in its own class, so none are named."""
    kinds: tuple[classes.Kind, ...] = ("sequence", "token")
    return {kind: () for kind in kinds if classes.is_known(config.hf, kind, trusts_code=config.trusts_code)}


def _nature_of(native: ModelConfig) -> Nature:
    if native.nature.bag:
        raise ConfigError(
            "model_impl='transformers', but this checkpoint has no transformer.",
            fix="Leave model_impl out.",
            param="model_impl",
        )
    if native.nature.adapters:
        raise ConfigError(
            "model_impl='transformers', but its texts are read with adapters that requests name.",
            fix="Leave model_impl out: Cenote's own implementation chooses adapters.",
            param="model_impl",
        )
    return replace(native.nature, masked_lm=None)


def _nature(hf: Any) -> Nature:
    causal = classes.is_causal(hf)
    # XLNet and its like put their class token last.
    ends = causal or getattr(hf, "summary_type", None) == "last"
    return Nature(causal=causal, causal_source="transformers", pooled="last" if ends else "cls")


def _position_limit(hf: Any, module: nn.Module) -> int | None:
    limit = getattr(hf, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    padding = classes.padding_position(module)
    return limit if padding is None else limit - padding - 1
