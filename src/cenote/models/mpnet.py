"""MPNet (Song et al. 2020, arXiv 2004.09297).

RoBERTa without segments, whose scores get a bias that depends on how far a key is from its query. All layers share the
bias; distances fall into buckets that grow wider with distance (Raffel et al. 2019, arXiv 1910.10683, section 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..hf import Raw
from ..layers.attention import Rule
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
        self.relative = RelativeBias(config.shape.num_heads)

    def rule(self) -> Rule:
        """Every layer adds the same bias."""
        return Rule(bias=self.relative.between)


class RelativeBias(nn.Module):
    """What is added to a score for the distance of its key; `bias` is `[buckets, H]`."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(_NUM_BUCKETS, num_heads), requires_grad=False)
        self._by_distance_HW: Tensor | None = None

    def prepare(self) -> None:
        """Write the bias out by distance, from `-_FAR` to `_FAR`, once, after loading."""
        self._by_distance_HW = self.bias[buckets(_FAR).to(self.bias.device)].t().contiguous()

    def between(self, query: Tensor, key_k: Tensor) -> Tensor:
        """Positions of queries `[..., q]` and of keys `[k]` to `[..., H, q, k]`."""
        assert self._by_distance_HW is not None
        # Whatever is farther away shares the outermost buckets.
        away = (key_k - query[..., None]).clamp_(-_FAR, _FAR) + _FAR
        return self._by_distance_HW.index_select(1, away.flatten()).view(-1, *away.shape).movedim(0, -3)


def buckets(far: int) -> Tensor:
    """Buckets of the distances (key minus query) from `-far` to `far`, int64 `[2 * far + 1]`, always on the CPU.

    Near distances have a bucket each; farther ones share buckets that widen as the logarithm. Later keys have buckets
    of their own. Some distances lie exactly on a border, so the order of the float32 operations is the published one.
    """
    distance = torch.arange(-far, far + 1)
    per_side = _NUM_BUCKETS // 2
    near = per_side // 2
    size = distance.abs()
    growth = torch.log(size.float() / near) / math.log(_FAR / near) * (per_side - near)
    wide = (near + growth.clamp(min=0).long()).clamp(max=per_side - 1)
    return torch.where(size < near, size, wide) + per_side * (distance > 0)
