"""DeBERTa v2 (He et al. 2020, arXiv 2006.03654) and v3 (He et al. 2021, arXiv 2111.09543).

BERT whose tokens mostly have no positions of their own: each layer scores what a query holds against how far away a
key stands, and the other way round. All layers share one table of distances, which each projects by itself. The largest
v2 add a convolution over neighbouring tokens to the first layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import CheckpointError
from ..hf import Raw
from ..layers.attention import Rule
from ..layers.blocks import NOTHING, Block, Encoder, EncoderShape, Hidden, PerRow
from ..layers.convolution import Kernel, around
from ..layers.disentangled import Disentangled, buckets
from ..layers.embeddings import Embeddings, Table
from ..layers.kernels import DistanceTables
from ..layers.linear import ACTIVATIONS, Linear
from ..layers.norms import LayerNorm
from ..layers.packed import Bounds, Packed
from ..steps import Nature, Stage
from .bert import RENAME as BERT_RENAME
from .bert import masked_lm

PREFIXES = ("deberta.",)
RENAME = (
    (r"^encoder\.conv\.conv\.", "encoder.blocks.0.kernel."),
    (r"^encoder\.conv\.LayerNorm\.", "encoder.blocks.0.kernel_norm."),
    (r"^encoder\.rel_embeddings\.", "distances."),
    (r"^encoder\.LayerNorm\.", "distance_norm."),
    (r"^encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)_proj\.", r"encoder.blocks.\1.qkv.\2."),
    (r"^encoder\.layer\.(\d+)\.attention\.self\.pos_(query|key)_proj\.", r"encoder.blocks.\1.distance_\2."),
    *BERT_RENAME,
)
IGNORED = (
    (r"^embeddings\.position_ids$", "a counter, not a weight"),
    (r"^embeddings\.position_embeddings\.", "positions that the config says are not added"),
    (r"^(cls|lm_predictions|mask_predictions)\.", "the pre-training heads, where nobody reads them"),
)
HEADS = {
    "sequence": (Stage("pooler.dense", "gelu"), Stage("classifier")),
    "token": (Stage("classifier"),),
}

_KINDS = {"c2p": "a query's content and a key's distance", "p2c": "a key's content and a query's distance"}


@dataclass(frozen=True)
class Distances:
    """How distances are scored.

    Args:
        kinds: Of scores: `c2p`, `p2c` or both.
        num_buckets: Into how many the distances of one side fall; None where each has one of its own.
        max_distance: Where the last of them ends.
        shared: Whether distances are projected as the tokens are, and not by weights of their own.
        normed: Whether the table is normalised before.
    """

    kinds: tuple[str, ...]
    num_buckets: int | None
    max_distance: int
    shared: bool
    normed: bool

    @property
    def span(self) -> int:
        """Rows of the table for one side."""
        return self.num_buckets or self.max_distance

    def rows(self) -> Tensor:
        """Row of the table for each distance (query minus key), from the farthest key behind to the farthest before."""
        # One distance beyond the last border, so that all that are farther share its row.
        far = self.max_distance + 1
        each = torch.arange(-far, far + 1, device="cpu")
        if self.num_buckets is not None:
            each = buckets(far, self.num_buckets, self.max_distance)
        return (each + self.span).clamp_(0, 2 * self.span - 1)


@dataclass(frozen=True)
class Convolution:
    """Over the tokens of the first layer; `size` is odd, `activation` one of `layers.linear.ACTIVATIONS`."""

    size: int
    activation: str


@dataclass(frozen=True)
class Config:
    """Sizes; `num_positions` is the longest text, `positions_added` whether tokens have positions of their own."""

    shape: EncoderShape
    distances: Distances
    convolution: Convolution | None
    vocab_size: int
    num_positions: int
    positions_added: bool
    num_segments: int

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden_size

    @property
    def position_limit(self) -> int | None:
        return self.num_positions

    @property
    def nature(self) -> Nature:
        return Nature(masked_lm=masked_lm(self.shape, self.hidden_size))

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`."""
        config = Raw(raw)
        hidden_size = config.size("hidden_size")
        # What `config.json` could also say. Each would change the numbers.
        config.must_all_be(
            {
                "conv_groups": 1,
                "pooler_hidden_act": "gelu",
                "embedding_size": hidden_size,
                "pooler_hidden_size": hidden_size,
                "attention_head_size": hidden_size // config.divisor("num_attention_heads", of=hidden_size),
                "quantization_config": None,
            }
        )
        num_positions = config.size("max_position_embeddings")
        num_segments = config.integer("type_vocab_size", 0)
        return cls(
            shape=EncoderShape(
                hidden_size=hidden_size,
                num_layers=config.size("num_hidden_layers"),
                num_heads=config.size("num_attention_heads"),
                inner_size=config.size("intermediate_size"),
                activation=config.activation("hidden_act", "gelu"),
                norm_eps=config.number("layer_norm_eps", 1e-7),
            ),
            distances=_distances(config, num_positions),
            convolution=_convolution(config),
            vocab_size=config.size("vocab_size"),
            num_positions=num_positions,
            positions_added=bool(config.value("position_biased_input", True)),
            num_segments=num_segments,
        )


class Model(nn.Module):
    """Embeddings, encoder, and the table of distances."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        size, eps = config.hidden_size, config.shape.norm_eps
        num_positions = config.num_positions if config.positions_added else 0
        self.embeddings = Embeddings(config.vocab_size, num_positions, config.num_segments, size, eps)
        self.encoder = Encoder(config.shape, partial(DisentangledBlock, distances=config.distances))
        if config.convolution is not None:
            self.encoder.blocks[0] = ConvolvedBlock(config.shape, config.distances, config.convolution)
        self.distances = Table(2 * config.distances.span, size)
        self.distance_norm = nn.LayerNorm(size, eps=eps) if config.distances.normed else None
        self._rules: list[Rule] = []

    def prepare(self) -> None:
        """Project the distances for every layer, once, after loading: no text changes them."""
        rows = self.config.distances.rows()
        distances_RD = self.distances.weight.detach()
        if self.distance_norm is not None:
            distances_RD = self.distance_norm(distances_RD)
        blocks = [block for block in self.encoder.blocks if isinstance(block, DisentangledBlock)]
        self._rules = [block.rule(distances_RD, rows) for block in blocks]

    def forward(self, packed: Packed) -> Hidden:
        """Token ids to hidden states `[Q, D]`."""
        hidden: Hidden = self.encoder(self.embeddings(packed, packed.positions_T), packed, self._rules)
        return hidden


class DisentangledBlock(Block):
    """One layer, and how it projects distances where it does not share the projections of its tokens."""

    def __init__(self, shape: EncoderShape, distances: Distances) -> None:
        super().__init__(shape)
        size = shape.hidden_size
        self.kinds = distances.kinds
        own = () if distances.shared else distances.kinds
        self.distance_key = Linear(size, size) if "c2p" in own else None
        self.distance_query = Linear(size, size) if "p2c" in own else None

    def prepare(self) -> None:
        """Compute the whole layer in one call: what is its own is in the rule."""
        self.gather()

    def rule(self, distances_RD: Tensor, rows: Tensor) -> Rule:
        """How this layer makes scores of tokens and of distances `[R, D]`; after loading and before `prepare`."""
        scale = 1 / math.sqrt(distances_RD.shape[1] // self.num_heads * (1 + len(self.kinds)))
        key = self.distance_key or self.qkv.only("key")
        query = self.distance_query or self.qkv.only("query")
        met = [
            F.linear(distances_RD, linear.weight, linear.bias).unflatten(1, (self.num_heads, -1))
            if kind in self.kinds and linear.weight is not None
            else None
            for kind, linear in (("c2p", key), ("p2c", query))
        ]
        # They meet nothing but the table, so what they made of it is all that is kept.
        self.distance_key = self.distance_query = None
        if not self.kinds:
            return Rule(scale=scale)
        if self.kernels is not None:
            return Rule(scale=scale, distances=DistanceTables(self.kernels, rows, *met))
        scaled = (None if table_RHK is None else table_RHK * scale for table_RHK in met)
        return Rule(scale=scale, content=Disentangled(rows, *scaled).between)


class ConvolvedBlock(DisentangledBlock):
    """The first layer, which adds a convolution of what it was given to what it gives, and normalises again."""

    def __init__(self, shape: EncoderShape, distances: Distances, convolution: Convolution) -> None:
        super().__init__(shape, distances)
        size = shape.hidden_size
        self.kernel = Kernel(size, size, convolution.size)
        self.kernel_norm = LayerNorm(size, eps=shape.norm_eps)
        self.activation = ACTIVATIONS[convolution.activation]

    def forward(
        self, hidden_TD: Tensor, bounds: Bounds, rule: Rule, rows_Q: Tensor | None, own_T: PerRow = NOTHING
    ) -> Tensor:
        """As `Block.forward`."""
        hidden_QD = super().forward(hidden_TD, bounds, rule, rows_Q, own_T)
        index_T, lengths_T = _places(bounds, hidden_TD.device)
        around_QWD = around(hidden_TD, index_T, lengths_T, self.kernel.size // 2)
        if rows_Q is not None:
            around_QWD = around_QWD[rows_Q]
        return self.kernel_norm.forward(self.activation(self.kernel(around_QWD)), hidden_QD)


def _places(bounds: Bounds, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of each token its place in its text, and how many tokens of that are attended to, both `[T]`."""
    places = [torch.arange(run.num_tokens, device=device).repeat(run.num_seqs) for run in bounds.runs]
    lengths = [torch.full_like(own, run.key_len) for own, run in zip(places, bounds.runs, strict=True)]
    return torch.cat(places), torch.cat(lengths)


def _convolution(config: Raw) -> Convolution | None:
    size = config.integer("conv_kernel_size", 0)
    if size <= 0:
        return None
    if size % 2 == 0:
        raise CheckpointError(f"config.json says conv_kernel_size={size}.", allowed="It is odd, or 0 for none.")
    return Convolution(size, config.activation("conv_act", "tanh"))


def _distances(config: Raw, num_positions: int) -> Distances:
    if not config.value("relative_attention", False):
        raise CheckpointError("config.json says relative_attention=False.", allowed="Only True is supported here.")
    kinds = config.value("pos_att_type", ())
    kinds = tuple(kind.strip() for kind in kinds.lower().split("|")) if isinstance(kinds, str) else tuple(kinds)
    if not set(kinds) <= set(_KINDS):
        raise CheckpointError(
            f"config.json says pos_att_type={list(kinds)}.",
            allowed=f"Known are {', '.join(f'{kind} ({what})' for kind, what in _KINDS.items())}.",
        )
    max_distance = config.integer("max_relative_positions", -1)
    max_distance = max_distance if max_distance >= 1 else num_positions
    num_buckets = config.integer("position_buckets", -1)
    if num_buckets > 0 and max_distance - 1 <= num_buckets // 2:
        raise CheckpointError(
            f"config.json says position_buckets={num_buckets} of distances up to {max_distance}.",
            allowed="Half of the buckets are fewer than the distances.",
        )
    normed = [part.strip() for part in str(config.value("norm_rel_ebd", "none")).lower().split("|")]
    return Distances(
        kinds=kinds,
        num_buckets=num_buckets if num_buckets > 0 else None,
        max_distance=max_distance,
        shared=bool(config.value("share_att_key", False)),
        normed="layer_norm" in normed,
    )
