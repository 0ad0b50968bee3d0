"""Nomic BERT (Nussbaum et al. 2024, arXiv 2402.01613) and its mixture of experts (arXiv 2502.07972).

BERT with rotary positions and gated feed-forwards, mostly without biases. Its own files name sizes as GPT-2's do;
transformers names them as BERT's are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ..errors import CheckpointError
from ..hf import Raw
from ..layers.blocks import Block, EncoderShape
from ..layers.experts import Experts, ExpertsShape
from ..rope import Dynamic, Plain, Rope, reach, read, stated
from . import bert, gte

PREFIXES = ("nomic_bert.", "bert.")
RENAME = (
    *bert.RENAME[:4],
    (r"^emb_ln\.", "embeddings.norm."),
    (r"^encoder\.layers\.(\d+)\.attn\.Wqkv\.", r"encoder.blocks.\1.qkv."),
    (r"^encoder\.layers\.(\d+)\.attn\.out_proj\.", r"encoder.blocks.\1.out."),
    (r"^encoder\.layers\.(\d+)\.norm1\.", r"encoder.blocks.\1.attention_norm."),
    (r"^encoder\.layers\.(\d+)\.norm2\.", r"encoder.blocks.\1.norm."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc11\.", r"encoder.blocks.\1.inner.up_gate.up."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc12\.", r"encoder.blocks.\1.inner.up_gate.gate."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc1\.", r"encoder.blocks.\1.inner.up."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc2\.", r"encoder.blocks.\1.inner.down."),
    (r"^encoder\.layers\.(\d+)\.mlp\.router\.layer\.", r"encoder.blocks.\1.inner.router."),
    (r"^encoder\.layers\.(\d+)\.mlp\.experts\.mlp\.w1$", r"encoder.blocks.\1.inner.ups.weight"),
    (r"^encoder\.layers\.(\d+)\.mlp\.experts\.mlp\.w2$", r"encoder.blocks.\1.inner.downs.weight"),
    (r"^encoder\.layers\.(\d+)\.mlp\.experts\.bias$", r"encoder.blocks.\1.inner.bias"),
    *gte.TRANSFORMERS,
)
IGNORED = (*bert.IGNORED[1:], (r"rotary_emb\.inv_freq$", "frequencies that the config states too"))
HEADS = bert.HEADS

_ONLY: Final[Mapping[str, Any]] = {
    "prenorm": False,
    "parallel_block": False,
    "causal": False,
    "use_rms_norm": False,
    "norm_mlp": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "num_shared_experts": 0,
    "expert_choice_router": False,
    "moe_normalize_expert_weights": False,
    "quantization_config": None,
}
# Feed-forwards by their names: the activation, and whether it is a gate. The makers' other names of gelu all compute
# the exact one too, and no checkpoint has them.
_KINDS: Final = {"swiglu": ("silu", True), "geglu": ("gelu", True), "glu": ("sigmoid", True), "gelu": ("gelu", False)}
_GATE_MULTIPLE: Final = 256
_BASE: Final = 1000.0
_TRAINED_LEN: Final = 2048


@dataclass(frozen=True)
class Config(gte.Config):
    """As GTE's; the layers `expert_layers` have experts in place of their feed-forward."""

    experts: ExpertsShape | None = None
    expert_layers: tuple[int, ...] = ()

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`, with the makers' keys or with those of transformers."""
        config = Raw(raw)
        config.must_all_be(_ONLY)
        return cls._of_makers(config) if "n_embd" in raw else cls._of_transformers(config)

    @classmethod
    def _of_transformers(cls, config: Raw) -> Self:
        hidden_size, longest = config.size("hidden_size"), config.size("max_position_embeddings")
        num_heads = config.divisor("num_attention_heads", of=hidden_size)
        config.must_be("head_dim", hidden_size // num_heads)
        rope = read(stated(config.raw, _BASE), size=hidden_size // num_heads, max_len=longest)
        return cls(
            shape=EncoderShape(
                hidden_size=hidden_size,
                num_layers=config.size("num_hidden_layers"),
                num_heads=num_heads,
                inner_size=config.size("intermediate_size"),
                activation=config.activation("hidden_act", "silu"),
                norm_eps=config.number("layer_norm_eps", 1e-12),
                gated=True,
                attention_bias=False,
                up_bias=False,
                down_bias=False,
                rope=rope,
            ),
            vocab_size=config.size("vocab_size"),
            num_positions=0,
            num_segments=config.size("type_vocab_size", 2),
            embedding_size=hidden_size,
            pad_id=config.integer("pad_token_id", 0),
            longest=reach(rope, longest),
        )

    @classmethod
    def _of_makers(cls, config: Raw) -> Self:
        hidden_size, num_layers = config.size("n_embd"), config.size("n_layer")
        num_heads = config.divisor("n_head", of=hidden_size)
        config.must_be("num_heads_kv", num_heads)
        activation, gated = _kind(config)
        rope = _rope(config, hidden_size // num_heads)
        attention_bias = bool(config.value("qkv_proj_bias", True))
        shape = EncoderShape(
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            inner_size=_inner_size(config, hidden_size, gated=gated),
            activation=activation,
            norm_eps=config.number("layer_norm_epsilon", 1e-5),
            gated=gated,
            attention_bias=attention_bias,
            up_bias=bool(config.value("mlp_fc1_bias", True)),
            down_bias=bool(config.value("mlp_fc2_bias", True)),
            rope=rope,
        )
        every = config.integer("moe_every_n_layers", 0)
        return cls(
            shape=shape,
            vocab_size=_up_to_multiple(config.size("vocab_size"), config.size("pad_vocab_size_multiple", 1)),
            num_positions=0,
            num_segments=config.integer("type_vocab_size", 2),
            embedding_size=hidden_size,
            pad_id=config.integer("pad_token_id", 0),
            longest=_longest(config, rope),
            experts=_experts(config, shape) if every > 0 else None,
            expert_layers=tuple(number for number in range(num_layers) if every > 0 and number % every == 1),
        )


class Model(bert.Model):
    """BERT, with experts in some layers."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for number in config.expert_layers:
            block = self.encoder.blocks[number]
            assert isinstance(block, Block)
            assert config.experts is not None
            block.inner = Experts(config.experts)


def _kind(config: Raw) -> tuple[str, bool]:
    named = config.value("activation_function")
    if named not in _KINDS:
        raise CheckpointError(
            f"config.json says activation_function={named!r}.", allowed=f"Known are {', '.join(_KINDS)}."
        )
    return _KINDS[named]


def _inner_size(config: Raw, hidden_size: int, *, gated: bool) -> int:
    """Gates come in multiples of 256, whatever the file says."""
    size = config.size("n_inner", 8 * hidden_size // 3 if gated else 4 * hidden_size)
    return _up_to_multiple(size, _GATE_MULTIPLE) if gated else size


def _rope(config: Raw, size: int) -> Rope:
    """Rotary positions of a share of a head; a factor lets the base grow with texts beyond the trained length."""
    share, base = config.number("rotary_emb_fraction"), config.number("rotary_emb_base", 10_000.0)
    says: dict[str, Any] = {"rope_theta": base}
    if config.number("rotary_scaling_factor", 0.0):
        says |= {"rope_type": "dynamic", "factor": config.number("rotary_scaling_factor")}
    return read(says, size=int(size * share), max_len=config.size("max_trained_positions", _TRAINED_LEN))


def _longest(config: Raw, rope: Rope) -> int:
    stated_len = config.integer("n_positions", 0)
    if isinstance(rope, Dynamic):
        return max(stated_len, reach(rope, rope.trained_len))
    assert isinstance(rope, Plain)
    return stated_len if stated_len > 0 else config.size("max_trained_positions", _TRAINED_LEN)


def _experts(config: Raw, shape: EncoderShape) -> ExpertsShape:
    if shape.gated:
        raise CheckpointError(
            f"config.json says activation_function={config.value('activation_function')!r} of its experts.",
            allowed="Experts without gates: gelu.",
        )
    num_experts, top = config.size("num_experts"), config.size("moe_top_k")
    if top > num_experts:
        raise CheckpointError(
            f"config.json says moe_top_k={top} and num_experts={num_experts}.", allowed="At most all experts."
        )
    return ExpertsShape(shape.hidden_size, shape.inner_size, shape.activation, num_experts, top)


def _up_to_multiple(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
