"""ALBERT (Lan et al. 2019, arXiv 1909.11942): BERT with narrow embeddings and one layer that stands in every place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import nn

from ..hf import Raw
from ..layers.linear import Linear
from ..steps import MaskedLM, Stage
from . import bert

_LAYER = r"^encoder\.albert_layer_groups\.0\.albert_layers\.0\."

PREFIXES = ("albert.",)
RENAME = (
    (r"^encoder\.embedding_hidden_mapping_in\.", "project."),
    (_LAYER + r"attention\.(query|key|value)\.", r"encoder.blocks.0.qkv.\1."),
    (_LAYER + r"attention\.dense\.", "encoder.blocks.0.out."),
    (_LAYER + r"attention\.LayerNorm\.", "encoder.blocks.0.attention_norm."),
    (_LAYER + r"ffn\.", "encoder.blocks.0.inner.up."),
    (_LAYER + r"ffn_output\.", "encoder.blocks.0.inner.down."),
    (_LAYER + r"full_layer_layer_norm\.", "encoder.blocks.0.norm."),
    *bert.RENAME,
)
IGNORED = (
    (r"^embeddings\.position_ids$", "a counter, not a weight"),
    (r"^pooler\.", "the sentence-order pooler, which no embedding reads"),
    (r"^(predictions|sop_classifier)\.", "the pre-training heads, where nobody reads them"),
)
HEADS = {
    "sequence": (Stage("pooler", "tanh"), Stage("classifier")),
    "token": (Stage("classifier"),),
}

# No published checkpoint has several layers to share.
_ONE_LAYER: Mapping[str, Any] = {"num_hidden_groups": 1, "inner_group_num": 1}


@dataclass(frozen=True)
class Config(bert.Config):
    """As BERT's, with `embedding_size` of its own."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; one layer is shared by all places."""
        config = Raw(raw)
        config.must_all_be(_ONE_LAYER)
        found = super().from_hf({**raw, "hidden_act": config.value("hidden_act", "gelu_new")})
        return replace(found, embedding_size=config.size("embedding_size", 128))

    @property
    def masked_lm(self) -> MaskedLM:
        """As BERT's, as wide as the embeddings and under other names."""
        return replace(
            super().masked_lm,
            dense="predictions.dense",
            norm="predictions.LayerNorm",
            decoder="predictions.decoder",
            bias="predictions.bias",
        )


class Model(bert.Model):
    """BERT's, with one layer in every place; its embeddings are always projected."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.project = Linear(config.embedding_size, config.hidden_size)
        self.encoder.blocks = nn.ModuleList([self.encoder.blocks[0]] * config.shape.num_layers)
