"""ModernBERT (Warner et al. 2024, arXiv 2412.13663): BERT made like today's language models.

It normalises before attention and feed-forward, has rotary positions and gates, and in most layers a token sees its
neighbourhood only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from torch import nn

from ..errors import CheckpointError
from ..hf import Raw
from ..layers.blocks import Hidden
from ..layers.decoder import Decoder, DecoderShape
from ..layers.embeddings import Embeddings
from ..layers.packed import Packed
from ..rope import Rope, reach, read
from ..steps import MaskedLM, Nature, Stage, StageNorm, Stages

PREFIXES = ("model.",)
RENAME = (
    (r"^embeddings\.tok_embeddings\.", "embeddings.words."),
    (r"^final_norm\.", "decoder.norm."),
    (r"^layers\.(\d+)\.attn_norm\.", r"decoder.blocks.\1.attention_norm."),
    (r"^layers\.(\d+)\.attn\.Wqkv\.", r"decoder.blocks.\1.qkv."),
    (r"^layers\.(\d+)\.attn\.Wo\.", r"decoder.blocks.\1.out."),
    (r"^layers\.(\d+)\.mlp_norm\.", r"decoder.blocks.\1.inner_norm."),
    (r"^layers\.(\d+)\.mlp\.Wi\.", r"decoder.blocks.\1.gate_up."),
    (r"^layers\.(\d+)\.mlp\.Wo\.", r"decoder.blocks.\1.down."),
)
IGNORED = ((r"^(head|decoder)\.", "the masked-language-model head, where nobody reads it"),)

_FULL: Final = "full_attention"
_NEAR: Final = "sliding_attention"
_BASES: Final = {_FULL: 160_000.0, _NEAR: 10_000.0}
_OLD_BASES: Final = {_FULL: "global_rope_theta", _NEAR: "local_rope_theta"}


def HEADS(config: Config) -> Mapping[str, Stages]:  # noqa: N802  # the name that a file gives its heads by
    """A linear layer, an activation and a norm before the classifier; texts are read by their first token or mean."""
    head = Stage("head.dense", config.head_activation, bias=None, row=config.head_row)
    stages = (head, StageNorm("head.norm", config.shape.norm_eps, bias=None), Stage("classifier"))
    return {"sequence": stages, "token": stages}


@dataclass(frozen=True)
class Config:
    """Sizes and kinds; `head_activation` and `head_row` are the heads'."""

    shape: DecoderShape
    vocab_size: int
    position_limit: int | None
    head_activation: str
    head_row: Literal["first", "mean"]

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden_size

    @property
    def nature(self) -> Nature:
        return Nature(
            masked_lm=MaskedLM(
                dense="head.dense",
                norm="head.norm",
                decoder="decoder",
                bias="decoder.bias",
                size=self.hidden_size,
                activation=self.head_activation,
                norm_eps=self.shape.norm_eps,
                may_lack_bias=True,
            )
        )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`, whether it lists the kinds of its layers or says which of them see the whole text."""
        config = Raw(raw)
        config.must_be("quantization_config", None)
        hidden_size, max_len = config.size("hidden_size"), config.size("max_position_embeddings")
        num_heads = config.divisor("num_attention_heads", of=hidden_size)
        head_size = hidden_size // num_heads
        kinds = _kinds(config, config.size("num_hidden_layers"))
        far = config.size("local_attention", 128) // 2
        ropes = {kind: _rope(raw, kind, head_size, max_len) for kind in set(kinds)}
        return cls(
            shape=DecoderShape(
                hidden_size=hidden_size,
                num_heads=num_heads,
                num_key_heads=num_heads,
                head_size=head_size,
                inner_size=config.size("intermediate_size"),
                activation=config.activation("hidden_activation", "gelu"),
                norm_eps=config.number("norm_eps", 1e-5),
                causal=False,
                windows=tuple(far if kind == _NEAR else None for kind in kinds),
                ropes=tuple(ropes[kind] for kind in kinds),
                qkv_bias=bool(raw.get("attention_bias")),
                out_bias=bool(raw.get("attention_bias")),
                inner_bias=bool(raw.get("mlp_bias")),
                layer_norm=True,
                norm_bias=bool(raw.get("norm_bias")),
                first_norm=False,
            ),
            vocab_size=config.size("vocab_size"),
            position_limit=min(reach(rope, max_len) for rope in ropes.values()),
            head_activation=config.activation("classifier_activation", "gelu"),
            head_row=_head_row(config),
        )


class Model(nn.Module):
    """Table of words, norm and blocks."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape = config.shape
        self.embeddings = Embeddings(
            config.vocab_size, 0, 0, shape.hidden_size, shape.norm_eps, norm_bias=shape.norm_bias
        )
        self.decoder = Decoder(shape)

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to hidden states `[Q, D]`."""
        return self.decoder.forward(self.embeddings(packed, packed.positions_T), packed)


def _kinds(config: Raw, num_layers: int) -> list[str]:
    every = config.size("global_attn_every_n_layers", 3)
    kinds = config.value("layer_types", [_NEAR if number % every else _FULL for number in range(num_layers)])
    if len(kinds) != num_layers or not set(kinds) <= set(_BASES):
        raise CheckpointError(
            f"config.json says layer_types={kinds!r}.", allowed=f"{num_layers} of {_FULL} or {_NEAR}."
        )
    return list(kinds)


def _rope(raw: Mapping[str, Any], kind: str, size: int, max_len: int) -> Rope:
    """Rotary positions of one kind of layer; old files scale both kinds alike."""
    new = raw.get("rope_parameters") or {}
    if not set(new) <= set(_BASES):
        raise CheckpointError(f"config.json says rope_parameters={new!r}.", allowed=f"Those of {_FULL} and {_NEAR}.")
    base = raw.get(_OLD_BASES[kind], _BASES[kind])
    if base is None:
        # A file that names no base for the neighbourhood means the other one.
        base = raw.get(_OLD_BASES[_FULL]) or _BASES[_FULL]
    says = {"rope_theta": base, **(raw.get("rope_scaling") or {}), **(new.get(kind) or {})}
    return read(says, size=size, max_len=max_len)


def _head_row(config: Raw) -> Literal["first", "mean"]:
    named = config.value("classifier_pooling", "cls")
    if named not in ("cls", "mean"):
        raise CheckpointError(f"config.json says classifier_pooling={named!r}.", allowed="cls or mean.")
    return "mean" if named == "mean" else "first"
