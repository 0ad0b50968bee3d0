"""JinaBERT v2 (Günther et al. 2023, arXiv 2310.19923): BERT that takes long texts, by scores that fall with distance.

Its checkpoints call themselves `bert`. Those for code (jina-embeddings-v2-base-code) also normalise queries and keys,
and what the attention gives a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from torch import Tensor

from ..errors import CheckpointError
from ..hf import Raw
from ..layers.alibi import Alibi
from ..layers.attention import Rule
from ..layers.blocks import Block, EncoderShape
from ..layers.norms import LayerNorm
from ..steps import Nature
from . import bert

PREFIXES = bert.PREFIXES
RENAME = (
    (r"^encoder\.layer\.(\d+)\.attention\.self\.layer_norm_q\.", r"encoder.blocks.\1.query_norm."),
    (r"^encoder\.layer\.(\d+)\.attention\.self\.layer_norm_k\.", r"encoder.blocks.\1.key_norm."),
    (r"^encoder\.layer\.(\d+)\.layer_norm_1\.", r"encoder.blocks.\1.second_norm."),
    (r"^encoder\.layer\.(\d+)\.(mlp\.layernorm|layer_norm_2)\.", r"encoder.blocks.\1.norm."),
    (r"^encoder\.layer\.(\d+)\.mlp\.(gated_layers|up_gated_layer)\.", r"encoder.blocks.\1.inner.up_gate."),
    (r"^encoder\.layer\.(\d+)\.mlp\.up_layer\.", r"encoder.blocks.\1.inner.up."),
    (r"^encoder\.layer\.(\d+)\.mlp\.(wo|down_layer)\.", r"encoder.blocks.\1.inner.down."),
    *bert.RENAME,
)
IGNORED = bert.IGNORED
HEADS = bert.HEADS

_ONLY: Final[Mapping[str, Any]] = {**bert.ONLY, "position_embedding_type": "alibi"}
# Of gated feed-forwards: the activation.
_GATES: Final = {"geglu": "gelu", "reglu": "relu"}


def claims(raw: Mapping[str, Any]) -> bool:
    """Whether a `config.json` of the `model_type` `bert` is one of these."""
    return raw.get("position_embedding_type") == "alibi"


@dataclass(frozen=True)
class Config(bert.Config):
    """As BERT's, without a table of positions.

    Attributes:
        longest: Longest text; beyond it nothing was tried.
        norms: Whether queries, keys and a second time the result of the attention are normalised.
    """

    longest: int = 0
    norms: bool = False

    @property
    def position_limit(self) -> int | None:
        return self.longest

    @property
    def nature(self) -> Nature:
        return Nature(pooled="mean")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; that queries and keys are normalised stands in the name of its makers' code alone."""
        config = Raw(raw)
        config.must_all_be(_ONLY)
        plain = super().from_hf({**raw, "position_embedding_type": "absolute"})
        kind = config.value("feed_forward_type")
        if kind not in (*_GATES, "original"):
            raise CheckpointError(
                f"config.json says feed_forward_type={kind!r}.", allowed=f"Known are {', '.join(_GATES)} and original."
            )
        norms = any("qk-post-norm" in str(name) for name in _makers(raw))
        shape = replace(plain.shape, up_bias=not norms)
        if kind in _GATES:
            shape = replace(shape, gated=True, gate_first=not norms, up_bias=False, activation=_GATES[kind])
        return replace(plain, shape=shape, num_positions=0, longest=plain.num_positions, norms=norms)


class Model(bert.Model):
    """BERT whose scores fall with distance."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._alibi: Alibi | None = None

    def prepare(self) -> None:
        """Make the slopes, once, after loading."""
        self._alibi = Alibi(self.config.shape.num_heads, self.embeddings.words.weight.device)

    def block(self, shape: EncoderShape) -> Block:
        """One layer."""
        return NormedBlock(shape) if self.config.norms else Block(shape)

    def rule(self) -> Rule:
        """Every layer adds the same bias."""
        assert self._alibi is not None
        return Rule(bias=self._alibi.between)


class NormedBlock(Block):
    """One layer of the checkpoints for code."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__(shape)
        self.query_norm, self.key_norm, self.second_norm = (
            LayerNorm(shape.hidden_size, eps=shape.norm_eps) for _ in range(3)
        )

    def projected(
        self, hidden_TD: Tensor, rows_Q: Tensor | None, chosen_T: Tensor | None, chosen_Q: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[Q, D]` and keys `[T, D]`, normalised over all heads, and values `[T, D]`."""
        query_QD, key_TD, value_TD = super().projected(hidden_TD, rows_Q, chosen_T, chosen_Q)
        return self.query_norm.forward(query_QD), self.key_norm.forward(key_TD), value_TD

    def added(self, attended_QD: Tensor, hidden_QD: Tensor) -> Tensor:
        """Both added and normalised, twice."""
        return self.second_norm.forward(super().added(attended_QD, hidden_QD), hidden_QD)


def _makers(raw: Mapping[str, Any]) -> list[Any]:
    named = raw.get("auto_map")
    return [raw.get("_name_or_path"), *(named.values() if isinstance(named, dict) else ())]
