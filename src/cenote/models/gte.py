"""GTE v1.5 and mGTE (Zhang et al. 2024, arXiv 2407.19669), and Arctic Embed M 2.0 (arXiv 2412.04506) on it.

BERT with rotary positions and gated feed-forwards. Its own files call it `new`; others, `gte`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ..hf import Raw
from ..layers.blocks import EncoderShape
from ..rope import Rope, read, stated
from ..steps import Nature
from . import bert

TRANSFORMERS = (
    (r"^layers\.(\d+)\.self_attn\.q_proj\.", r"encoder.blocks.\1.qkv.query."),
    (r"^layers\.(\d+)\.self_attn\.k_proj\.", r"encoder.blocks.\1.qkv.key."),
    (r"^layers\.(\d+)\.self_attn\.v_proj\.", r"encoder.blocks.\1.qkv.value."),
    (r"^layers\.(\d+)\.self_attn\.o_proj\.", r"encoder.blocks.\1.out."),
    (r"^layers\.(\d+)\.mlp\.(up|gate)_proj\.", r"encoder.blocks.\1.inner.up_gate.\2."),
    (r"^layers\.(\d+)\.mlp\.down_proj\.", r"encoder.blocks.\1.inner.down."),
    (r"^layers\.(\d+)\.post_attention_layernorm\.", r"encoder.blocks.\1.attention_norm."),
    (r"^layers\.(\d+)\.post_mlp_layernorm\.", r"encoder.blocks.\1.norm."),
)
"""The names inside transformers of what its makers call otherwise, here and in relatives."""

PREFIXES = ("new.", "gte.")
RENAME = (
    *bert.RENAME[:4],
    (r"^encoder\.layer\.(\d+)\.attention\.qkv_proj\.", r"encoder.blocks.\1.qkv."),
    (r"^encoder\.layer\.(\d+)\.attention\.", r"layers.\1.self_attn."),
    (r"^encoder\.layer\.(\d+)\.mlp\.up_gate_proj\.", r"encoder.blocks.\1.inner.up_gate."),
    (r"^encoder\.layer\.(\d+)\.mlp\.down_proj\.", r"encoder.blocks.\1.inner.down."),
    (r"^encoder\.layer\.(\d+)\.attn_ln\.", r"encoder.blocks.\1.attention_norm."),
    (r"^encoder\.layer\.(\d+)\.mlp_ln\.", r"encoder.blocks.\1.norm."),
    *TRANSFORMERS,
)
IGNORED = (bert.IGNORED[1], (r"^lm_head\.", "the masked-language-model head"))
HEADS = bert.HEADS

_ONLY: Final[Mapping[str, Any]] = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "quantization_config": None,
}
# Of the rotary positions, where `config.json` names none; each maker of such files has another default.
_BASES: Final = {"new": 10_000.0, "gte": 160_000.0}


@dataclass(frozen=True)
class Config(bert.Config):
    """As BERT's, with a longest text in place of a table of positions."""

    longest: int | None = None

    @property
    def position_limit(self) -> int | None:
        return self.longest

    @property
    def nature(self) -> Nature:
        """Without the head of a masked language model, which is stored under names of its own and read by nothing."""
        return Nature()

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; what scales the rotary positions does not lengthen the longest text."""
        config = Raw(raw)
        config.must_all_be(_ONLY)
        hidden_size, longest = config.size("hidden_size"), config.size("max_position_embeddings")
        num_heads = config.divisor("num_attention_heads", of=hidden_size)
        return cls(
            shape=EncoderShape(
                hidden_size=hidden_size,
                num_layers=config.size("num_hidden_layers"),
                num_heads=num_heads,
                inner_size=config.size("intermediate_size"),
                activation=config.activation("hidden_act", "gelu"),
                norm_eps=config.number("layer_norm_eps", 1e-12),
                gated=True,
                up_bias=False,
                rope=_rope(raw, hidden_size // num_heads, longest),
            ),
            vocab_size=config.size("vocab_size"),
            num_positions=0,
            num_segments=config.integer("type_vocab_size", 1),
            embedding_size=hidden_size,
            pad_id=config.integer("pad_token_id", 0),
            longest=longest,
        )


Model = bert.Model


def _rope(raw: Mapping[str, Any], size: int, longest: int) -> Rope:
    """Rotary positions. `ntk` is the family's own kind: a larger base, and all turn more slowly, in every text."""
    says = stated(raw, _BASES.get(str(raw.get("model_type")), _BASES["new"]))
    kind = Raw({"type": says.get("rope_type") or says.get("type")}).value("type", "default")
    if kind != "ntk":
        return read(says, size=size, max_len=longest)
    config = Raw(says)
    config.must_be("mixed_b", None)
    factor = config.number("factor")
    slower = {"rope_type": "linear", "rope_theta": config.number("rope_theta") * factor, "factor": factor ** (2 / size)}
    return read(slower, size=size, max_len=longest)
