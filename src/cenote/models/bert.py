"""BERT (Devlin et al. 2018, arXiv 1810.04805)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, nn

from ..hf import Raw
from ..layers.attention import PLAIN, Rule
from ..layers.blocks import Block, Encoder, EncoderShape, Hidden
from ..layers.embeddings import Embeddings
from ..layers.linear import Linear
from ..layers.packed import Packed
from ..steps import MaskedLM, Nature, Stage

PREFIXES = ("bert.",)
RENAME = (
    (r"^embeddings\.word_embeddings\.", "embeddings.words."),
    (r"^embeddings\.position_embeddings\.", "embeddings.positions."),
    (r"^embeddings\.token_type_embeddings\.", "embeddings.segments."),
    (r"^embeddings\.LayerNorm\.", "embeddings.norm."),
    (r"^encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)\.", r"encoder.blocks.\1.qkv.\2."),
    (r"^encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"encoder.blocks.\1.out."),
    (r"^encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.", r"encoder.blocks.\1.attention_norm."),
    (r"^encoder\.layer\.(\d+)\.intermediate\.dense\.", r"encoder.blocks.\1.inner.up."),
    (r"^encoder\.layer\.(\d+)\.output\.dense\.", r"encoder.blocks.\1.inner.down."),
    (r"^encoder\.layer\.(\d+)\.output\.LayerNorm\.", r"encoder.blocks.\1.norm."),
)
IGNORED = (
    (r"^embeddings\.position_ids$", "a counter, not a weight"),
    (r"^pooler\.", "the next-sentence pooler, which no embedding reads"),
    (r"^cls\.", "the pre-training heads, where nobody reads them"),
)
HEADS = {
    "sequence": (Stage("pooler.dense", "tanh"), Stage("classifier")),
    "token": (Stage("classifier"),),
}

# What `config.json` could also say. Each would change the numbers, so anything else stops the start.
ONLY: Mapping[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}


@dataclass(frozen=True)
class Config:
    """Sizes; `num_segments` is 0 where the family has no segment ids."""

    shape: EncoderShape
    vocab_size: int
    num_positions: int
    num_segments: int
    embedding_size: int
    pad_id: int

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden_size

    @property
    def position_limit(self) -> int | None:
        return self.num_positions

    @property
    def nature(self) -> Nature:
        return Nature(masked_lm=self.masked_lm)

    @property
    def masked_lm(self) -> MaskedLM:
        """The masked-language-model head."""
        return masked_lm(self.shape, self.embedding_size)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; only learned absolute positions and bidirectional attention are BERT."""
        config = Raw(raw)
        config.must_all_be(ONLY)
        hidden_size = config.size("hidden_size")
        return cls(
            shape=EncoderShape(
                hidden_size=hidden_size,
                num_layers=config.size("num_hidden_layers"),
                num_heads=config.divisor("num_attention_heads", of=hidden_size),
                inner_size=config.size("intermediate_size"),
                activation=config.activation("hidden_act", "gelu"),
                norm_eps=config.number("layer_norm_eps", 1e-12),
            ),
            vocab_size=config.size("vocab_size"),
            num_positions=config.size("max_position_embeddings"),
            num_segments=config.size("type_vocab_size", 2),
            embedding_size=hidden_size,
            pad_id=config.integer("pad_token_id", 0),
        )


def masked_lm(shape: EncoderShape, size: int) -> MaskedLM:
    """BERT's masked-language-model head, whose activation and epsilon are those of its layers."""
    return MaskedLM(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        decoder="cls.predictions.decoder",
        bias="cls.predictions.bias",
        size=size,
        activation=shape.activation,
        norm_eps=shape.norm_eps,
    )


class Model(nn.Module):
    """Embeddings and encoder. A relative overrides `positions`, `rule` or `block`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        size = config.embedding_size
        shape = config.shape
        sizes = config.vocab_size, config.num_positions, config.num_segments, size
        self.embeddings = Embeddings(*sizes, shape.norm_eps, adapters=shape.adapters)
        self.project = None if size == config.hidden_size else Linear(size, config.hidden_size)
        self.encoder = Encoder(config.shape, self.block)

    def prepare(self) -> None:
        """Let the first layer's queries, keys and values be looked up where they can be, once, after loading.

        They depend on a token, its position and its segment alone. In six layers they are a 24th of all products.
        """
        first = self.encoder.blocks[0]
        if self.project is None and isinstance(first, Block) and self.encoder.looks_up(self.rule()):
            assert first.qkv.weight is not None
            self.embeddings.multiply(first.qkv.weight, first.qkv.bias)

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to hidden states `[Q, D]`."""
        chosen, positions_T, known = self.chosen(packed), self.positions(packed), None
        if chosen is None and not packed.layers and (found := self.embeddings.with_products(packed, positions_T)):
            hidden_TD, known = found
        else:
            hidden_TD = self.embeddings(packed, positions_T, chosen)
        if self.project is not None:
            hidden_TD = self.project(hidden_TD)
        hidden: Hidden = self.encoder(hidden_TD, packed, self.rule(), chosen, known)
        return hidden

    def chosen(self, packed: Packed) -> Tensor | None:
        """The adapters of the tokens, `[T, A]`, by `AdapterSizes.chosen`; None where none has one."""
        adapters = self.config.shape.adapters
        if packed.adapters_T is None:
            return None
        assert adapters is not None
        return adapters.chosen(packed.adapters_T, self.embeddings.words.weight.dtype)

    def positions(self, packed: Packed) -> Tensor:
        """Rows of the position table, `[T]`."""
        return packed.positions_T

    def rule(self) -> Rule:
        """How attention scores are made, in every layer."""
        return PLAIN

    def block(self, shape: EncoderShape) -> Block:
        """One layer."""
        return Block(shape)
