"""MPNet (Song et al. 2020, arXiv 2004.09297).

RoBERTa without segments, whose scores get a bias that depends on how far a key is from its query. All layers share the
bias; distances fall into buckets that grow wider with distance (Raffel et al. 2019, arXiv 1910.10683, section 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ..hf import Raw
from ..layers.attention import Rule
from ..layers.relative import RelativeBias
from . import roberta
from .bert import RENAME as BERT_RENAME

PREFIXES = ("mpnet.",)
RENAME = (
    (r"^encoder\.relative_attention_bias\.weight$", "relative.bias"),
    (r"^encoder\.layer\.(\d+)\.attention\.attn\.q\.", r"encoder.blocks.\1.qkv.query."),
    (r"^encoder\.layer\.(\d+)\.attention\.attn\.k\.", r"encoder.blocks.\1.qkv.key."),
    (r"^encoder\.layer\.(\d+)\.attention\.attn\.v\.", r"encoder.blocks.\1.qkv.value."),
    (r"^encoder\.layer\.(\d+)\.attention\.attn\.o\.", r"encoder.blocks.\1.out."),
    (r"^encoder\.layer\.(\d+)\.attention\.LayerNorm\.", r"encoder.blocks.\1.attention_norm."),
    *BERT_RENAME,
)
IGNORED = roberta.IGNORED
HEADS = roberta.HEADS

# Fixed by the architecture, whatever config.json says of its padding token.
_PAD_ID = 1
_NUM_BUCKETS = 32
_FAR = 128


@dataclass(frozen=True)
class Config(roberta.Config):
    """As RoBERTa's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; distances fall into 32 buckets in every MPNet, another number stops the start."""
        Raw(raw).must_be("relative_attention_num_buckets", _NUM_BUCKETS)
        return replace(super().from_hf({**raw, "pad_token_id": _PAD_ID}), num_segments=0)


class Model(roberta.Model):
    """RoBERTa with a relative bias."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.relative = RelativeBias(config.shape.num_heads, _NUM_BUCKETS, _FAR)

    def rule(self) -> Rule:
        """Every layer adds the same bias."""
        return Rule(bias=self.relative.between)
