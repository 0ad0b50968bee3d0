"""Llama (Touvron et al. 2023, arXiv 2302.13971), and what other language models share with it.

Converted to an embedder the language-model head is dropped, tied or not; what is pooled is the hidden state after the
last norm. Embedders trained from such models often let every token see all others, and say so by the name of a class of
their own: NVIDIA's `llama_bidirec` (arXiv 2409.07691), Voyage's and others' `Qwen3BidirectionalModel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Self

import torch
from torch import nn

from ..errors import CheckpointError
from ..hf import Raw, is_gritlm, sees_all
from ..layers.blocks import Hidden
from ..layers.decoder import Decoder, DecoderShape
from ..layers.embeddings import Table
from ..layers.packed import Packed
from ..rope import BY_LENGTH, Rope, reach, read, stated
from ..steps import Nature, Pooled, Row, Stage, Stages

PREFIXES = ("model.",)
RENAME = (
    (r"^embed_tokens\.", "words."),
    (r"^norm\.", "decoder.norm."),
    (r"^layers\.(\d+)\.self_attn\.([qkv])_proj\.", r"decoder.blocks.\1.qkv.\2."),
    (r"^layers\.(\d+)\.self_attn\.([qk]_norm)\.", r"decoder.blocks.\1.\2."),
    (r"^layers\.(\d+)\.self_attn\.o_proj\.", r"decoder.blocks.\1.out."),
    (r"^layers\.(\d+)\.mlp\.(gate|up)_proj\.", r"decoder.blocks.\1.gate_up.\2."),
    (r"^layers\.(\d+)\.mlp\.down_proj\.", r"decoder.blocks.\1.down."),
    (r"^layers\.(\d+)\.input_layernorm\.", r"decoder.blocks.\1.attention_norm."),
    (r"^layers\.(\d+)\.post_attention_layernorm\.", r"decoder.blocks.\1.inner_norm."),
)
IGNORED = (
    (r"^lm_head\.", "the language-model head, which no pooling reads"),
    (r"rotary_emb\.inv_freq$", "frequencies that the config states too"),
)


def HEADS(config: Config) -> Mapping[str, Stages]:  # noqa: N802  # the name that every architecture has
    """Whole texts are classified by the row that an embedder of the family would take."""
    row: Row = "first" if config.nature.pooled == "cls" else config.nature.pooled
    return {"sequence": (Stage("score", bias=None, row=row),), "token": (Stage("score"),)}


LM_HEAD = ("lm_head", "embed_tokens")

BASE: Final = 10_000.0
"""Of the rotary positions, where `config.json` names none."""

DEFAULTS: Mapping[str, Any] = {"hidden_act": "silu", "rms_norm_eps": 1e-6}
"""Of keys that `config.json` may leave out."""
ONLY: Mapping[str, Any] = {"quantization_config": None, "pretraining_tp": 1}
"""What `config.json` could also say. Each would change the numbers, so anything else stops the start."""

_POOLED: Mapping[str, Pooled] = {"avg": "mean", "cls": "cls", "last": "last"}
# What NVIDIA's `pooling` may say.


@dataclass(frozen=True)
class Config:
    """Sizes and kinds; `embedding_scale` is a factor of the rows of the table of words."""

    shape: DecoderShape
    vocab_size: int
    position_limit: int | None
    nature: Nature
    embedding_scale: float = 1.0

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden_size

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; every linear layer may have a bias."""
        bias, inner_bias = (bool(raw.get(key)) for key in ("attention_bias", "mlp_bias"))
        return cls.plain(raw).shaped(qkv_bias=bias, out_bias=bias, inner_bias=inner_bias)

    def shaped(self, **changes: Any) -> Self:
        """The same with another shape."""
        shape = replace(self.shape, **changes)
        stands = shape.causal and not any(isinstance(rope, BY_LENGTH) for rope in shape.ropes)
        return replace(self, shape=shape, nature=replace(self.nature, shares_prefixes=stands))

    def windowed(self, kinds: Sequence[str], far: int | None) -> Self:
        """The same with a window of `far` in each layer of the kind `sliding_attention`, and none in `full_attention`.

        Raises:
            CheckpointError: A layer is of another kind, there is no window, or a layer has no kind.
        """
        num_layers = len(self.shape.windows)
        known = {"full_attention", "sliding_attention"} if far is not None else {"full_attention"}
        if len(kinds) != num_layers or not set(kinds) <= known:
            raise CheckpointError(
                f"config.json says layer_types={list(kinds)!r}.",
                allowed=f"{num_layers} of full_attention, or sliding_attention where sliding_window is a number.",
            )
        return self.shaped(windows=tuple(far if kind == "sliding_attention" else None for kind in kinds))

    @classmethod
    def plain(cls, raw: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """What the families have in common: no bias, no window, one kind of rotary positions that turns whole heads.

        Args:
            defaults: Of keys that the family's `config.json` may leave out.
        """
        config = Raw({**DEFAULTS, **defaults, **{key: value for key, value in raw.items() if value is not None}})
        config.must_all_be(ONLY)
        num_heads, num_layers = config.size("num_attention_heads"), config.size("num_hidden_layers")
        head_size, max_len = _head_size(config), config.size("max_position_embeddings")
        rope = cls.rope(config, head_size, max_len)
        nature = nature_of(raw)
        return cls(
            shape=DecoderShape(
                hidden_size=config.size("hidden_size"),
                num_heads=num_heads,
                num_key_heads=_num_key_heads(config, num_heads),
                head_size=head_size,
                inner_size=config.size("intermediate_size"),
                activation=config.activation("hidden_act"),
                norm_eps=config.number("rms_norm_eps"),
                causal=nature.causal,
                windows=(None,) * num_layers,
                ropes=(rope,) * num_layers,
            ),
            vocab_size=config.size("vocab_size"),
            position_limit=reach(rope, max_len),
            nature=nature,
        ).shaped()

    @classmethod
    def rope(cls, config: Raw, head_size: int, max_len: int) -> Rope:
        """Rotary positions; a relative that leaves part of a head unturned overrides it."""
        says = stated(config.raw, BASE)
        Raw({**config.raw, **says}).must_be("partial_rotary_factor", 1)
        return read(says, size=head_size, max_len=max_len)


class Model(nn.Module):
    """Table of words and decoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = Table(config.vocab_size, config.hidden_size)
        self.decoder = Decoder(config.shape)
        self._scale = config.embedding_scale

    def prepare(self) -> None:
        """Round the scale to the precision of the table, as the family was trained, once, after loading."""
        self._scale = torch.tensor(self._scale, dtype=self.words.weight.dtype, device="cpu").item()

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to hidden states `[Q, D]`."""
        hidden_TD = packed.embeds_TD
        if hidden_TD is None:
            hidden_TD = self.words(packed.ids_T)
            if self._scale != 1.0:
                hidden_TD = hidden_TD * self._scale
        return self.decoder.forward(hidden_TD, packed)


def nature_of(raw: Mapping[str, Any]) -> Nature:
    """Causal, unless `config.json` says otherwise by one of two keys or the name of a class."""
    nature = Nature(causal=True, pooled="last", logit_softcap=raw.get("final_logit_softcapping"))
    source = sees_all(raw)
    if source is not None:
        nature = replace(nature, causal=False, causal_source=source, pooled=_pooled(raw), projection="linear.weight")
        nature = replace(nature, pools_prompt=not is_gritlm(raw))
    if raw.get("use_bidirectional_attention"):
        return replace(nature, causal=False, causal_source="config.json: use_bidirectional_attention")
    if raw.get("is_causal") is not None:
        return replace(nature, causal=bool(raw["is_causal"]), causal_source="config.json: is_causal")
    return nature


def _pooled(raw: Mapping[str, Any]) -> Pooled:
    config = Raw(raw)
    named = config.value("pooling") if raw.get("model_type") == "llama_bidirec" else config.value("pooling", "avg")
    if named not in _POOLED:
        raise CheckpointError(f"config.json says pooling={named!r}.", allowed=f"Known are {', '.join(_POOLED)}.")
    if str((raw.get("architectures") or [""])[0]).endswith("Classification"):
        config.must_be("temperature", 1)  # logits would be divided by it; an embedder only trained with it
    return _POOLED[named]


def distance(window: int, *, causal: bool) -> int:
    """How far a token sees, inclusive: a causal window counts the token itself, the other kind is a radius."""
    if window < 1:
        raise CheckpointError(f"config.json says sliding_window={window}.", allowed="It is at least 1.")
    return window - 1 if causal else window


def _head_size(config: Raw) -> int:
    if config.value("head_dim", None) is not None:
        return config.size("head_dim")
    hidden_size = config.size("hidden_size")
    return hidden_size // config.divisor("num_attention_heads", of=hidden_size)


def _num_key_heads(config: Raw, num_heads: int) -> int:
    if config.value("num_key_value_heads", None) is None:
        return num_heads
    return config.divisor("num_key_value_heads", of=num_heads)
