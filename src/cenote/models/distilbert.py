"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108): BERT without segments, and with names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ..hf import Raw
from ..layers.blocks import EncoderShape
from ..steps import MaskedLM, Stage
from . import bert

PREFIXES = ("distilbert.",)
RENAME = (
    (r"^embeddings\.word_embeddings\.", "embeddings.words."),
    (r"^embeddings\.position_embeddings\.", "embeddings.positions."),
    (r"^embeddings\.LayerNorm\.", "embeddings.norm."),
    (r"^transformer\.layer\.(\d+)\.attention\.q_lin\.", r"encoder.blocks.\1.qkv.query."),
    (r"^transformer\.layer\.(\d+)\.attention\.k_lin\.", r"encoder.blocks.\1.qkv.key."),
    (r"^transformer\.layer\.(\d+)\.attention\.v_lin\.", r"encoder.blocks.\1.qkv.value."),
    (r"^transformer\.layer\.(\d+)\.attention\.out_lin\.", r"encoder.blocks.\1.out."),
    (r"^transformer\.layer\.(\d+)\.sa_layer_norm\.", r"encoder.blocks.\1.attention_norm."),
    (r"^transformer\.layer\.(\d+)\.ffn\.lin1\.", r"encoder.blocks.\1.inner.up."),
    (r"^transformer\.layer\.(\d+)\.ffn\.lin2\.", r"encoder.blocks.\1.inner.down."),
    (r"^transformer\.layer\.(\d+)\.output_layer_norm\.", r"encoder.blocks.\1.norm."),
)
IGNORED = (
    (r"^embeddings\.position_ids$", "a counter, not a weight"),
    (r"^vocab_(transform|layer_norm|projector)\.", "the masked-language-model head, where nobody reads it"),
)
HEADS = {
    "sequence": (Stage("pre_classifier", "relu"), Stage("classifier")),
    "token": (Stage("classifier"),),
}

# Not in config.json: the architecture fixes it.
_NORM_EPS = 1e-12


@dataclass(frozen=True)
class Config(bert.Config):
    """As BERT's, from other keys. Sinusoidal positions are stored like learned ones, so they need no case here."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`."""
        config = Raw(raw)
        config.must_all_be(bert.ONLY)
        hidden_size = config.size("dim")
        return cls(
            shape=EncoderShape(
                hidden_size=hidden_size,
                num_layers=config.size("n_layers"),
                num_heads=config.divisor("n_heads", of=hidden_size),
                inner_size=config.size("hidden_dim"),
                activation=config.activation("activation", "gelu"),
                norm_eps=_NORM_EPS,
            ),
            vocab_size=config.size("vocab_size"),
            num_positions=config.size("max_position_embeddings"),
            num_segments=0,
            embedding_size=hidden_size,
            pad_id=config.integer("pad_token_id", 0),
        )

    @property
    def masked_lm(self) -> MaskedLM:
        """As BERT's, under other names."""
        return replace(
            super().masked_lm,
            dense="vocab_transform",
            norm="vocab_layer_norm",
            decoder="vocab_projector",
            bias="vocab_projector.bias",
        )


Model = bert.Model
