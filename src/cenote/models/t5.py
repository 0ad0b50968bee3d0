"""The encoders of T5 (Raffel et al. 2019, arXiv 1910.10683), mT5 (arXiv 2010.11934) and UMT5 (arXiv 2304.09151).

Scores get a bias by distance and are not scaled. T5 and mT5 have one table of biases for all layers, UMT5 has one in
each. Decoders are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from torch import Tensor, nn

from ..errors import CheckpointError
from ..hf import ACTIVATIONS, Raw
from ..layers.attention import Rule
from ..layers.blocks import NOTHING, Block, Encoder, EncoderShape, Hidden, PerRow
from ..layers.embeddings import Table
from ..layers.linear import Linear
from ..layers.norms import RMSNorm
from ..layers.packed import Bounds, Packed
from ..layers.relative import RelativeBias
from ..steps import Nature, Stage

PREFIXES = ("transformer.",)
RENAME = (
    (r"^(shared|(encoder|decoder)\.embed_tokens)\.", "words."),
    (r"^encoder\.final_layer_norm\.", "norm."),
    (r"^encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.([qkv])\.", r"encoder.blocks.\1.qkv.\2."),
    (r"^encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.o\.", r"encoder.blocks.\1.out."),
    (r"^encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias\.weight$", r"relative.\1.bias"),
    (r"^encoder\.block\.(\d+)\.layer\.0\.layer_norm\.", r"encoder.blocks.\1.attention_norm."),
    (r"^encoder\.block\.(\d+)\.layer\.1\.layer_norm\.", r"encoder.blocks.\1.norm."),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_0\.", r"encoder.blocks.\1.inner.up_gate.gate."),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_1\.", r"encoder.blocks.\1.inner.up_gate.up."),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi\.", r"encoder.blocks.\1.inner.up."),
    (r"^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wo\.", r"encoder.blocks.\1.inner.down."),
)
IGNORED = (
    (r"^decoder\.", "the decoder, which no pooling reads"),
    (r"^lm_head\.", "the language-model head"),
)
HEADS = {"token": (Stage("classifier"),)}

_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "t5": {"feed_forward_proj": "relu", "num_heads": 8, "d_kv": 64},
    "mt5": {"feed_forward_proj": "gated-gelu", "num_heads": 6, "d_kv": 64},
    "umt5": {"feed_forward_proj": "gated-gelu", "num_heads": 6, "d_kv": 64},
}


@dataclass(frozen=True)
class Config:
    """Sizes; `num_tables` is how many tables of biases there are: one, or one a layer."""

    shape: EncoderShape
    head_size: int
    num_buckets: int
    far: int
    num_tables: int
    vocab_size: int

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden_size

    @property
    def position_limit(self) -> int | None:
        return None

    @property
    def nature(self) -> Nature:
        return Nature(pooled="mean", why_not_float16="activations of T5 overflow in float16")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; the defaults are those of the family that it names."""
        family = str(raw.get("model_type"))
        config = Raw({**_DEFAULTS.get(family, {}), **{key: value for key, value in raw.items() if value is not None}})
        config.must_be("quantization_config", None)
        num_layers = config.size("num_layers")
        activation, gated = _feed_forward(config)
        num_buckets, far = (
            config.size("relative_attention_num_buckets", 32),
            config.size("relative_attention_max_distance", 128),
        )
        if num_buckets % 4 or far <= num_buckets // 4:
            raise CheckpointError(
                f"config.json says {num_buckets} relative_attention_num_buckets of distances up to {far}.",
                allowed="A multiple of 4, and a quarter of them are fewer than the distances.",
            )
        return cls(
            shape=EncoderShape(
                hidden_size=config.size("d_model"),
                num_layers=num_layers,
                num_heads=config.size("num_heads"),
                inner_size=config.size("d_ff"),
                activation=activation,
                norm_eps=config.number("layer_norm_epsilon", 1e-6),
                gated=gated,
                attention_bias=False,
                up_bias=False,
                down_bias=False,
            ),
            head_size=config.size("d_kv"),
            num_buckets=num_buckets,
            far=far,
            num_tables=num_layers if family == "umt5" else 1,
            vocab_size=config.size("vocab_size"),
        )


class Model(nn.Module):
    """Table of words, encoder, biases by distance, and a norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape = config.shape
        self.words = Table(config.vocab_size, config.hidden_size)
        self.relative = nn.ModuleList(
            RelativeBias(shape.num_heads, config.num_buckets, config.far) for _ in range(config.num_tables)
        )
        self.encoder = Encoder(shape, partial(T5Block, head_size=config.head_size))
        self.norm = RMSNorm(config.hidden_size, shape.norm_eps, by_pytorch=True)

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to hidden states `[Q, D]`, the last ones normalised."""
        words_TD = packed.embeds_TD if packed.embeds_TD is not None else self.words(packed.ids_T)
        rules = [Rule(scale=1.0, bias=table.between) for table in self.relative if isinstance(table, RelativeBias)]
        num_layers = len(self.encoder.blocks)
        hidden = self.encoder.forward(words_TD, packed, rules if len(rules) == num_layers else rules * num_layers)
        last_QD = self.norm.forward(hidden.last_QD)
        layers = {number: last_QD if number == num_layers else rows for number, rows in hidden.layers.items()}
        return Hidden(last_QD, layers)


class T5Block(Block):
    """One layer: normalises before each half, by the root mean square, and its heads may be of another size."""

    def __init__(self, shape: EncoderShape, head_size: int) -> None:
        super().__init__(shape)
        size, inner = shape.hidden_size, shape.num_heads * head_size
        self.qkv = Linear(size, 3 * inner, bias=False, parts=dict.fromkeys("qkv", inner))
        self.out = Linear(inner, size, bias=False)
        for name in ("attention_norm", "norm"):
            # Scores are not scaled, so what the reference rounds off is multiplied.
            self.add_module(name, RMSNorm(size, shape.norm_eps, by_pytorch=True))

    def forward(
        self, hidden_TD: Tensor, bounds: Bounds, rule: Rule, rows_Q: Tensor | None, own_T: PerRow = NOTHING
    ) -> Tensor:
        """As `Block.forward`."""
        attended_QD, _ = self.attended(self.attention_norm(hidden_TD), bounds, rule, rows_Q, own_T)
        normed_QD = self.norm.of_sum(hidden_TD if rows_Q is None else hidden_TD[rows_Q], attended_QD)
        inner_QD: Tensor = self.inner(normed_QD)
        return inner_QD.add_(attended_QD)


def _feed_forward(config: Raw) -> tuple[str, bool]:
    """The activation and whether it is a gate; the gate that is called gelu is the approximation by tanh."""
    named = str(config.value("feed_forward_proj"))
    kind = "gelu_new" if named == "gated-gelu" else named.removeprefix("gated-")
    if kind not in ACTIVATIONS:
        raise CheckpointError(
            f"config.json says feed_forward_proj={named!r}.",
            allowed=f"One of {', '.join(ACTIVATIONS)}, or that after 'gated-'.",
        )
    return ACTIVATIONS[kind], named.startswith("gated-")
