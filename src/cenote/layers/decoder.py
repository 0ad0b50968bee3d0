"""The blocks of today's language models, and of encoders made like them.

They normalise, attend, add; normalise, feed forward, add.

What tells the families apart is data: biases, norms of queries and keys, norms after each half, the window and the
rotary positions of each layer.

Source: Touvron et al. 2023 (arXiv 2302.13971), Ainslie et al. 2023 (arXiv 2305.13245), Gemma 2 (arXiv 2408.00118).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..rope import Rope
from .attention import Rule, attend
from .blocks import Hidden
from .kernels import Kernels
from .linear import Linear
from .norms import LayerNorm, RMSNorm
from .packed import Bounds, Packed
from .rope import Angles, Turn, turned


@dataclass(frozen=True)
class DecoderShape:
    """Sizes and kinds.

    Args:
        hidden_size, num_heads, num_key_heads, head_size, inner_size: `D`, `H`, heads of keys and values, `K`, `I`.
        activation: Of the gate, one of `linear.ACTIVATIONS`.
        norm_eps: Added to the mean square, or the variance, in the norms.
        norm_offset: Added to the stored weights of the norms.
        qkv_bias, out_bias, inner_bias: Whether the linear layers have one.
        layer_norm: Whether the norms subtract the mean too; else they divide by the root mean square alone.
        norm_bias: Whether such a layer norm has a bias.
        first_norm: Whether the first layer normalises what it attends to; the embeddings may be normalised already.
        query_key_norms: Whether each head of queries and keys is normalised before it is turned.
        post_norms: Whether the results of attention and feed-forward are normalised before they are added.
        causal: Whether a token sees no later one.
        scale, softcap: As in `attention.Rule`.
        windows: For each layer how far a token sees, inclusive, or None.
        ropes: Rotary positions of each layer.
    """

    hidden_size: int
    num_heads: int
    num_key_heads: int
    head_size: int
    inner_size: int
    activation: str
    norm_eps: float
    causal: bool
    windows: tuple[int | None, ...]
    ropes: tuple[Rope, ...]
    norm_offset: float = 0.0
    qkv_bias: bool = False
    out_bias: bool = False
    inner_bias: bool = False
    layer_norm: bool = False
    norm_bias: bool = False
    first_norm: bool = True
    query_key_norms: bool = False
    post_norms: bool = False
    scale: float | None = None
    softcap: float | None = None

    def rule(self, layer: int) -> Rule:
        """Who sees whom in a layer, counted from 0."""
        return Rule(scale=self.scale, causal=self.causal, window=self.windows[layer], softcap=self.softcap)


class DecoderBlock(nn.Module):
    """One layer."""

    kernels: Kernels | None = None

    def __init__(self, shape: DecoderShape, number: int) -> None:
        super().__init__()
        size, inner = shape.hidden_size, shape.inner_size
        parts = {name: heads * shape.head_size for name, heads in _heads(shape).items()}
        self.head_size, self.sizes = shape.head_size, tuple(parts.values())
        self.attention_norm = _norm(shape) if number or shape.first_norm else None
        self.qkv = Linear(size, sum(self.sizes), bias=shape.qkv_bias, parts=parts)
        self.q_norm, self.k_norm = (
            RMSNorm(shape.head_size, shape.norm_eps, shape.norm_offset) if shape.query_key_norms else None
            for _ in range(2)
        )
        self.out = Linear(self.sizes[0], size, bias=shape.out_bias)
        self.attention_post_norm = _norm(shape) if shape.post_norms else None
        self.inner_norm = _norm(shape)
        self.gate_up = Linear(
            size,
            2 * inner,
            bias=shape.inner_bias,
            activation=shape.activation,
            parts={"gate": inner, "up": inner},
            gate="gate",
        )
        self.down = Linear(inner, size, bias=shape.inner_bias)
        self.inner_post_norm = _norm(shape) if shape.post_norms else None

    def forward(self, hidden_TD: Tensor, bounds: Bounds, rule: Rule, turn: Turn, rows_Q: Tensor | None) -> Tensor:
        """`[T, D]` to `[Q, D]`: the rows `rows_Q`, or all of them. Keys and values are those of all tokens."""
        qkv = self.qkv(_normed(self.attention_norm, hidden_TD)).split(self.sizes, dim=1)
        query, key, value = (part.unflatten(1, (-1, self.head_size)) for part in qkv)
        key = turned(key, turn, self.k_norm, self.kernels)
        if rows_Q is not None:
            query, hidden_TD, turn = query[rows_Q], hidden_TD[rows_Q], turn.of_rows(rows_Q)
        query = turned(query, turn, self.q_norm, self.kernels)
        attended = self.out(attend(query, key, value, bounds, rule, self.kernels))
        hidden_QD = _normed(self.attention_post_norm, attended)
        inner = self.gate_up(self.inner_norm.of_sum(hidden_TD, hidden_QD))
        return _normed(self.inner_post_norm, self.down(inner)).add_(hidden_QD)


class Decoder(nn.Module):
    """A stack of blocks, and a norm."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.blocks = nn.ModuleList(DecoderBlock(shape, number) for number in range(len(shape.windows)))
        self.norm = _norm(shape)
        self._angles: dict[Rope, Angles] = {}

    def prepare(self) -> None:
        """Compute the frequencies of the rotary positions, once, after loading."""
        self._angles = {rope: Angles(rope, self.norm.weight.device) for rope in self.shape.ropes}

    def forward(self, hidden_TD: Tensor, packed: Packed) -> Hidden:
        """Hidden states `[T, D]` of the embeddings to those after the last norm, kept rows only."""
        kept = packed.kept
        turns = {rope: angles.turn(packed, hidden_TD.dtype) for rope, angles in self._angles.items()}
        inner = {0: hidden_TD} if 0 in packed.layers else {}
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            rule, turn = self.shape.rule(number), turns[self.shape.ropes[number]]
            if number == last and kept is not None:
                hidden_TD = block(hidden_TD, kept.bounds, rule, turn, kept.rows_Q)
            else:
                hidden_TD = block(hidden_TD, packed.bounds, rule, turn, None)
            if number == last:
                hidden_TD = self.norm(hidden_TD)
            if number + 1 in packed.layers:
                inner[number + 1] = hidden_TD
        return Hidden(hidden_TD, inner)


def _heads(shape: DecoderShape) -> dict[str, int]:
    return {"q": shape.num_heads, "k": shape.num_key_heads, "v": shape.num_key_heads}


def _norm(shape: DecoderShape) -> RMSNorm | LayerNorm:
    if shape.layer_norm:
        return LayerNorm(shape.hidden_size, eps=shape.norm_eps, bias=shape.norm_bias)
    return RMSNorm(shape.hidden_size, shape.norm_eps, shape.norm_offset)


def _normed(norm: RMSNorm | LayerNorm | None, rows: Tensor) -> Tensor:
    return rows if norm is None else norm.forward(rows)
