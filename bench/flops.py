"""Floating-point operations of a transformer, counted by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GATED = ("modernbert", "qwen3")
_CAUSAL = ("qwen3",)


@dataclass(frozen=True, slots=True)
class Dims:
    """Sizes of a stack of plain transformer layers.

    Args:
        num_layers: Transformer layers.
        hidden: Width of the hidden state, `D`.
        inner: Width inside the feed-forward part, `F`.
        query: Width of all heads' queries, `Q`; None for `D`.
        key_value: Width of all heads' keys, and of their values, `V`; None for `Q`.
        is_gated: Whether the feed-forward part has two products before its activation.
        is_causal: Whether a token sees none after it.
        reaches: How far each layer's tokens see, None for all the way; () where all layers do.
        num_distances: Distances to either side that have keys and queries of their own (disentangled attention).
    """

    num_layers: int
    hidden: int
    inner: int
    query: int | None = None
    key_value: int | None = None
    is_gated: bool = False
    is_causal: bool = False
    reaches: tuple[int | None, ...] = ()
    num_distances: int = 0

    @classmethod
    def of_folder(cls, model: Path) -> Dims:
        """Read the sizes from `config.json` of a checkpoint of BERT, ModernBERT, DeBERTa-v2 or Qwen3."""
        raw = json.loads((model / "config.json").read_text())
        kind, heads = raw.get("model_type", "bert"), raw.get("num_attention_heads", 1)
        size = raw.get("head_dim") or raw["hidden_size"] // heads
        return cls(
            num_layers=raw["num_hidden_layers"],
            hidden=raw["hidden_size"],
            inner=raw["intermediate_size"],
            query=heads * size,
            key_value=raw.get("num_key_value_heads", heads) * size,
            is_gated=kind in _GATED,
            is_causal=kind in _CAUSAL,
            reaches=_reaches(raw) if kind == "modernbert" else (),
            num_distances=raw["position_buckets"] if kind == "deberta-v2" else 0,
        )

    @property
    def gemm_shapes(self) -> tuple[tuple[int, int], ...]:
        """(input width, output width) of the linear layers of one layer; query, key and value as one, gates as one."""
        query = self.query or self.hidden
        return (
            (self.hidden, query + 2 * (self.key_value or query)),
            (query, self.hidden),
            (self.hidden, self.inner * (2 if self.is_gated else 1)),
            (self.inner, self.hidden),
        )


def _reaches(raw: dict[str, Any]) -> tuple[int | None, ...]:
    reach = raw["local_attention"] // 2
    return tuple(None if kind == "full_attention" else reach for kind in raw["layer_types"])


def text_flops(dims: Dims, num_tokens: int) -> int:
    """FLOPs of one text of `num_tokens` (`n`) tokens in a packed batch, a multiply and an add counted as two.

    Per layer: twice `n` for each weight of the linear layers (`2 n (4 D D + 2 D F)` for BERT), and `4 Q` for each pair
    of a token and one that it sees, for the two matrix products of attention over all heads (`4 n n D` for BERT).
    Disentangled attention adds two products, of queries and of keys with those of the distances. Embeddings, norms,
    softmax, activations and pooling are left out: a hundredth of the work, and none of it is a matrix product.
    """
    query = dims.query or dims.hidden
    linear = 2 * num_tokens * sum(width_in * width_out for width_in, width_out in dims.gemm_shapes)
    reaches = dims.reaches or (None,) * dims.num_layers
    pairs = sum(_pairs(num_tokens, reach, is_causal=dims.is_causal) for reach in reaches)
    distances = min(2 * num_tokens - 1, 2 * dims.num_distances)
    return dims.num_layers * (linear + 4 * num_tokens * distances * query) + 4 * query * pairs


def _pairs(num_tokens: int, reach: int | None, *, is_causal: bool) -> int:
    """How many pairs of a token and one that it sees there are, itself included."""
    reach = num_tokens - 1 if reach is None else min(reach, num_tokens - 1)
    # Each token sees `reach` before it, but for those that the first ones lack.
    before = num_tokens * reach - reach * (reach + 1) // 2
    return num_tokens + before * (1 if is_causal else 2)


def workload_flops(dims: Dims, num_tokens: Iterable[int]) -> int:
    """FLOPs of all texts of a workload, without any padding."""
    return sum(text_flops(dims, n) for n in num_tokens)
