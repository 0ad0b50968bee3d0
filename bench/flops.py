"""Floating-point operations of a BERT-shaped encoder, counted by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Dims:
    """Sizes of an encoder of plain transformer layers.

    Args:
        num_layers: Transformer layers.
        hidden: Width of the hidden state, `D`.
        inner: Width inside the feed-forward part, `F`.
    """

    num_layers: int
    hidden: int
    inner: int

    @classmethod
    def of_folder(cls, model: Path) -> Dims:
        """Read the sizes from `config.json` of a BERT-like checkpoint."""
        raw = json.loads((model / "config.json").read_text())
        return cls(raw["num_hidden_layers"], raw["hidden_size"], raw["intermediate_size"])

    @property
    def gemm_shapes(self) -> tuple[tuple[int, int], ...]:
        """(input width, output width) of the linear layers of one layer, query, key and value as one."""
        return (
            (self.hidden, 3 * self.hidden),
            (self.hidden, self.hidden),
            (self.hidden, self.inner),
            (self.inner, self.hidden),
        )


def text_flops(dims: Dims, num_tokens: int) -> int:
    """FLOPs of one text of `num_tokens` (`n`) tokens in a packed batch, a multiply and an add counted as two.

    Per layer: `2 n (4 D D + 2 D F)` for the linear layers (query, key, value, output; two of the feed-forward part),
    and `4 n n D` for the two matrix products of attention, over all heads. Embeddings, norms, softmax, activations and
    pooling are left out: a hundredth of the work, and none of it is a matrix product.
    """
    linear = 2 * num_tokens * sum(width_in * width_out for width_in, width_out in dims.gemm_shapes)
    attention = 4 * num_tokens * num_tokens * dims.hidden
    return dims.num_layers * (linear + attention)


def workload_flops(dims: Dims, num_tokens: Iterable[int]) -> int:
    """FLOPs of all texts of a workload, without any padding."""
    return sum(text_flops(dims, n) for n in num_tokens)
