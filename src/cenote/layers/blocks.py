"""The encoder of BERT and its family: attention, then a feed-forward, each added to its input and then normalised.

Relatives turn queries and keys (rotary positions), gate the feed-forward, or leave out biases.

Source: Vaswani et al. 2017 (arXiv 1706.03762), Devlin et al. 2018 (arXiv 1810.04805), Shazeer 2020 (arXiv 2002.05202).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ..rope import Rope
from . import int8
from .adapters import AdapterSizes
from .attention import PLAIN, Rule, attend, why_not_kernels
from .kernels import EncoderLayer, Kernels, Weight
from .linear import Linear
from .norms import LayerNorm
from .packed import Bounds, Packed
from .rope import Angles, Turn, turned
from .tables import Known

_WIDEST = 384
"""Of layers that may do without keys. Wider models have more layers, so that it saves less of them, and it rounds more:
at this width a row differs from the same one among all rows by up to 1.2e-6 of the largest value, at 1,024 by 2.1e-6
(random weights)."""


@dataclass(frozen=True)
class EncoderShape:
    """Sizes of an encoder.

    Args:
        hidden_size, num_layers, num_heads, inner_size: `D`, the number of blocks, `H` and `I`.
        activation: Of the feed-forward, one of `linear.ACTIVATIONS`.
        norm_eps: Added to the variance in the layer norms.
        gated: Whether the feed-forward multiplies a second product with the activated one.
        gate_first: Whether the activated one is stored before the other, where both are one tensor.
        attention_bias, up_bias, down_bias: Whether the linear layers of the attention have a bias, those into the
            feed-forward, and the one out of it.
        rope: Rotary positions of queries and keys, or None.
        adapters: Of the updates of all linear layers that can be chosen from, or None.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    inner_size: int
    activation: str
    norm_eps: float
    gated: bool = False
    gate_first: bool = False
    attention_bias: bool = True
    up_bias: bool = True
    down_bias: bool = True
    rope: Rope | None = None
    adapters: AdapterSizes | None = None


class FeedForward(nn.Module):
    """`down(activation(up(x)))`, `[T, D]` to `[T, D]`."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        size, inner, adapters = shape.hidden_size, shape.inner_size, shape.adapters
        self.up = Linear(size, inner, bias=shape.up_bias, activation=shape.activation, adapters=adapters)
        self.down = Linear(inner, size, bias=shape.down_bias, adapters=adapters)

    def forward(self, hidden_TD: Tensor, chosen: Tensor | None = None) -> Tensor:
        out: Tensor = self.down(self.up(hidden_TD, chosen), chosen)
        return out


class GatedFeedForward(nn.Module):
    """`down(activation(gate(x)) * up(x))`, `[T, D]` to `[T, D]`."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        size, inner = shape.hidden_size, shape.inner_size
        parts = dict.fromkeys(("gate", "up") if shape.gate_first else ("up", "gate"), inner)
        self.up_gate = Linear(
            size,
            2 * inner,
            bias=shape.up_bias,
            activation=shape.activation,
            parts=parts,
            gate="gate",
            adapters=shape.adapters,
        )
        self.down = Linear(inner, size, bias=shape.down_bias, adapters=shape.adapters)

    def forward(self, hidden_TD: Tensor, chosen: Tensor | None = None) -> Tensor:
        out: Tensor = self.down(self.up_gate(hidden_TD, chosen), chosen)
        return out


@dataclass(frozen=True, eq=False)
class PerRow:
    """What each row of a forward has beside its hidden state.

    Args:
        turn: The angles of its rotary positions, or None.
        chosen: Its adapter, by `AdapterSizes.chosen`, `[T, A]`; None where no row has one.
    """

    turn: Turn | None = None
    chosen: Tensor | None = None

    def of_rows(self, rows_Q: Tensor) -> PerRow:
        """The same of some rows."""
        return PerRow(
            turn=None if self.turn is None else self.turn.of_rows(rows_Q),
            chosen=None if self.chosen is None else self.chosen[rows_Q],
        )


NOTHING = PerRow()


class Block(nn.Module):
    """One layer; normalises after each addition."""

    kernels: Kernels | None = None

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        size = shape.hidden_size
        self.num_heads = shape.num_heads
        parts = {"query": size, "key": size, "value": size}
        self.qkv = Linear(size, 3 * size, bias=shape.attention_bias, parts=parts, adapters=shape.adapters)
        self.out = Linear(size, size, bias=shape.attention_bias, adapters=shape.adapters)
        self.attention_norm = LayerNorm(size, eps=shape.norm_eps)
        self.inner: nn.Module = GatedFeedForward(shape) if shape.gated else FeedForward(shape)
        self.norm = LayerNorm(size, eps=shape.norm_eps)
        self.query: Linear | None = None
        self.key_value: Linear | None = None
        self._turned_key: Linear | None = None
        self._whole: EncoderLayer | None = None
        self._whole_int8: int8.Int8Layer | None = None

    def split(self) -> None:
        """Compute the queries of wanted rows alone from now on; after loading and before `prepare`.

        All rows keep the one product of before, so where weights are packed, these are packed twice.
        """
        query, *others = self.qkv.parts
        self.query, self.key_value = self.qkv.only(query), self.qkv.only(*others)
        if self._needs_no_keys():
            self._turned_key = self.qkv.only(others[0]).transposed()

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but what the kernels compute in one call."""
        return self.kernels is not None and type(self) is Block and type(self.inner) is FeedForward

    def _needs_no_keys(self) -> bool:
        """Whether the kernels may do without keys and values of a sequence of which one row is read."""
        if self.kernels is None or self.qkv.int8 or not self.is_plain:
            return False
        size = self.qkv.in_features
        return size <= _WIDEST and size // self.num_heads % (2 * self.kernels.functions.lanes) == 0

    def prepare(self) -> None:
        """Compute the whole layer in one call where it has nothing but plain parts."""
        if type(self) is Block:
            self.gather()

    def gather(self) -> None:
        """Gather what the kernels need for the whole layer in one call, once, where they can compute it."""
        if self.kernels is None or type(self.inner) is not FeedForward:
            return
        linears = self.qkv, self.query, self.key_value, self.out, self.inner.up, self.inner.down
        for linear in (*linears, self._turned_key):
            if linear is not None:
                linear.prepare()
        norms, activation = (self.attention_norm, self.norm), self.inner.up.activation
        there = [linear is not None for linear in linears]
        weights = [None if linear is None else linear.packed for linear in linears]
        products = [None if linear is None else linear.int8_product for linear in linears]
        if [weight is not None for weight in weights] == there:
            of_norms = [Weight(norm.weight, norm.bias) for norm in norms]
            self._whole = EncoderLayer(
                self.kernels,
                [*weights, *of_norms],
                eps=self.norm.eps,
                heads=self.num_heads,
                activation=activation,
                turned_key=None if self._turned_key is None else self._turned_key.packed,
            )
        elif [product is not None for product in products] == there:
            self._whole_int8 = int8.Int8Layer(
                self.kernels, products, norms, heads=self.num_heads, activation=activation
            )

    def forward(
        self, hidden_TD: Tensor, bounds: Bounds, rule: Rule, rows_Q: Tensor | None, own_T: PerRow = NOTHING
    ) -> Tensor:
        """`[T, D]` to `[Q, D]`: the rows `rows_Q`, or all of them. Keys and values are those of all tokens."""
        whole = self.whole(rule, bounds) if own_T is NOTHING else None
        if whole is not None:
            return whole(hidden_TD, None if rows_Q is None else hidden_TD[rows_Q], bounds, rule)
        attended_QD, own_Q = self.attended(hidden_TD, bounds, rule, rows_Q, own_T)
        hidden_QD = self.added(attended_QD, hidden_TD if rows_Q is None else hidden_TD[rows_Q])
        return self.norm.forward(self.inner(hidden_QD, own_Q.chosen), hidden_QD)

    def whole(self, rule: Rule, bounds: Bounds) -> EncoderLayer | int8.Int8Layer | None:
        """The layer as one call, where it is one for rows that have nothing of their own."""
        if self._whole_int8 is not None and int8.why_not_attend(rule, bounds) is None:
            return self._whole_int8
        return self._whole if bounds.key_rows_T is None and why_not_kernels(rule) is None else None

    def attended(
        self, hidden_TD: Tensor, bounds: Bounds, rule: Rule, rows_Q: Tensor | None, own_T: PerRow
    ) -> tuple[Tensor, PerRow]:
        """What the attention gives, `[Q, D]`, and what these rows have of their own."""
        own_Q = own_T if rows_Q is None else own_T.of_rows(rows_Q)
        parts = self.projected(hidden_TD, rows_Q, own_T.chosen, own_Q.chosen)
        query, key, value = (part.unflatten(1, (self.num_heads, -1)) for part in parts)
        if own_T.turn is not None and own_Q.turn is not None:
            query = turned(query, own_Q.turn, None, self.kernels)
            key = turned(key, own_T.turn, None, self.kernels)
        kernels = self.qkv.kernels if self.qkv.int8 and own_T.turn is None else None
        if kernels is not None and int8.why_not_attend(rule, bounds) is None:
            attended = int8.attend(kernels, query, key, value, bounds, rule)
        else:
            attended = attend(query, key, value, bounds, rule, self.kernels)
        return self.out(attended, own_Q.chosen), own_Q

    def projected(
        self, hidden_TD: Tensor, rows_Q: Tensor | None, chosen_T: Tensor | None, chosen_Q: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of the rows `rows_Q`, or of all, and keys and values of all, each with all heads side by side."""
        if rows_Q is None:
            query_QD, key_TD, value_TD = self.qkv(hidden_TD, chosen_T).chunk(3, dim=1)
        else:
            assert self.query is not None
            assert self.key_value is not None
            key_TD, value_TD = self.key_value(hidden_TD, chosen_T).chunk(2, dim=1)
            query_QD = self.query(hidden_TD[rows_Q], chosen_Q)
        return query_QD, key_TD, value_TD

    def added(self, attended_QD: Tensor, hidden_QD: Tensor) -> Tensor:
        """What the attention gives and what it was given, `[Q, D]`, added and normalised; the first is overwritten."""
        return self.attention_norm.forward(attended_QD, hidden_QD)


class Encoder(nn.Module):
    """A stack of blocks, which a relative makes of another kind."""

    def __init__(self, shape: EncoderShape, block: Callable[[EncoderShape], Block] = Block) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(shape) for _ in range(shape.num_layers))
        self._rope = shape.rope
        self._angles: Angles | None = None

    def prepare(self) -> None:
        """Only the last layer is asked for some rows; the others keep one product."""
        last = self.blocks[-1]
        assert isinstance(last, Block)
        last.split()
        if self._rope is not None:
            self._angles = Angles(self._rope, last.norm.weight.device)

    def looks_up(self, rule: Rule) -> bool:
        """Whether it can be given what the first layer makes of the embeddings."""
        blocks = list(self.blocks)
        plain = all(isinstance(block, Block) and block.is_plain for block in blocks[: max(1, len(blocks) - 1)])
        return plain and self._rope is None and why_not_kernels(rule) is None and rule.distances is None

    def forward(
        self,
        hidden_TD: Tensor,
        packed: Packed,
        rule: Rule | Sequence[Rule] = PLAIN,
        chosen: Tensor | None = None,
        known: Known | None = None,
    ) -> Hidden:
        """Hidden states `[T, D]` of the embeddings to those after the last layer, kept rows only.

        Args:
            hidden_TD: The embeddings.
            packed: Whose rows are whose, and which are wanted.
            rule: Who sees whom, in every layer or in each.
            chosen: The adapters of the rows, as in `PerRow`.
            known: What the first layer's queries, keys and values of all rows are, where `looks_up`.
        """
        rules = [rule] * len(self.blocks) if isinstance(rule, Rule) else rule
        kept = packed.kept
        turn = self._angles.turn(packed, hidden_TD.dtype) if self._angles else None
        own = NOTHING if turn is None and chosen is None else PerRow(turn, chosen)
        inner = {0: hidden_TD} if 0 in packed.layers else {}
        last = len(self.blocks) - 1
        begun = 0
        if isinstance(rule, Rule) and own is NOTHING and not packed.layers:
            most = len(self.blocks) if kept is None else last
            begun, hidden_TD = self._begin(hidden_TD, packed.bounds, rule, most, known)
        for number, (block, of_layer) in enumerate(zip(self.blocks[begun:], rules[begun:], strict=True), begun):
            if number == last and kept is not None:
                hidden_TD = block(hidden_TD, kept.bounds, of_layer, kept.rows_Q, own)
            else:
                hidden_TD = block(hidden_TD, packed.bounds, of_layer, None, own)
            if number + 1 in packed.layers:
                inner[number + 1] = hidden_TD
        return Hidden(hidden_TD, inner)

    def _begin(
        self, hidden_TD: Tensor, bounds: Bounds, rule: Rule, most: int, known: Known | None
    ) -> tuple[int, Tensor]:
        """The first `most` blocks in one call, where each is plain and is one: how many, and what they give."""
        plain = [block for block in self.blocks if type(block) is Block]
        whole = [block.whole(rule, bounds) for block in plain[:most]]
        layers = [layer.address for layer in whole if layer is not None]
        if not whole or whole[0] is None or len(layers) < most or rule.distances is not None:
            return 0, hidden_TD
        return most, whole[0].begin(layers, hidden_TD, bounds, rule, known)


@dataclass(frozen=True, eq=False)
class Hidden:
    """What a forward gives back.

    Args:
        last_QD: After the last layer, `[Q, D]`: the kept rows, or all.
        layers: Number of a layer -> its hidden states, for the layers that `Packed.layers` asked for: `[T, D]`, but
            `[Q, D]` for the last one.
    """

    last_QD: Tensor
    layers: dict[int, Tensor]
