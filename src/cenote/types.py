"""The nouns: what goes in, what crosses each border, what comes out. No torch, no web.

Arrays are numpy. A record is frozen where it crosses a border.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import CenoteError

IntArray: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float32]


InputType: TypeAlias = Literal["query", "document"]
"""What a text is, for models that read queries and documents in their own ways."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that a cross-encoder reads together.

    Args:
        text: The first text, for example the query.
        text_pair: The second text, for example the document.
    """

    text: str
    text_pair: str


Prompt: TypeAlias = "str | Pair | Sequence[int] | NDArray[Any] | Mapping[str, Any]"
"""One input: a text, a `Pair`, token ids, or a dict with `prompt`, `prompt_token_ids`, or `text` and `text_pair`."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One input as token ids, taken as they are: nothing is added and only the length is checked.

    Args:
        ids: int32 `[n]`.
    """

    ids: IntArray


@dataclass(frozen=True, slots=True)
class Framed:
    """One text of which only the middle is cut where it is too long; no prompt is put before it.

    Args:
        before: How it begins; stays whole.
        text: What gives.
        after: How it ends; stays whole.
        is_complete: Whether it holds its special tokens, so that none are added.
    """

    before: str
    text: str
    after: str
    is_complete: bool = False

    @property
    def whole(self) -> str:
        """All of it."""
        return self.before + self.text + self.after

    @property
    def inside(self) -> tuple[int, int]:
        """Where in `whole` the part that gives begins and ends, in characters."""
        return len(self.before), len(self.before) + len(self.text)


Input: TypeAlias = "str | Pair | Framed | Tokens"
"""One parsed input, as the machine takes it; `inputs.parse` makes it from a `Prompt`."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input after tokenising.

    Args:
        ids: Token ids with special tokens, int32 `[n]`.
        segments: Segment ids (0 for the first text of a pair, 1 for the second), int32 `[n]`; None means all 0.
        skip: How many leading tokens (those of a prompt) pooling leaves out.
        num_cut: How many tokens were cut off to fit the limit.
        counted: Whether `num_cut` is all of them; False where only the start of a long text was tokenised.
        attended: How many leading tokens the others attend to; None for all. The tokens behind them, such as those
            that expand a query, look at these and are seen by none, not even by themselves.
        keep: Positions of the tokens whose rows are given out, int32, ascending; None for all.
        at_width: Whether it was cut to a width that the checkpoint itself has, which is no reason to refuse it.
        chunks: The pieces that the model reads in its place where it is longer than the model; () where it is not.
        adapter: Number of the adapter that the model takes for it; None for none.
        row: Its row where that is made of its ids alone, so that no model reads it.
    """

    ids: IntArray
    segments: IntArray | None = None
    skip: int = 0
    num_cut: int = 0
    counted: bool = True
    attended: int | None = None
    keep: IntArray | None = None
    at_width: bool = False
    chunks: tuple[Chunk, ...] = ()
    adapter: int | None = None
    row: FloatArray | None = None

    @property
    def num_pieces(self) -> int:
        """In how many pieces the model reads it."""
        return max(1, len(self.chunks))

    @property
    def key(self) -> Hashable:
        """Equal where the model reads the same and gives out the same."""
        segments, keep = (None if array is None else array.tobytes() for array in (self.segments, self.keep))
        return self.ids.tobytes(), segments, self.skip, self.attended, keep, self.adapter


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """One text after tokenising, with the place of each token in it.

    Args:
        ids: Token ids with special tokens, int32 `[n]`.
        tokens: The vocabulary's own spelling of each; of an unknown one that, or the text that it stands for.
        spans: Start and end of each in the text, in characters, `[n, 2]`; 0 and 0 for special tokens.
        special: Which tokens were added around the text, bool `[n]`.
        continues: Which tokens go on with the word of the one before, bool `[n]`; None where the vocabulary does not
            tell those from others.
    """

    ids: IntArray
    tokens: Sequence[str]
    spans: NDArray[np.int64]
    special: NDArray[np.bool_]
    continues: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an input that is longer than the model.

    Args:
        encoded: What the model reads: the piece with the special tokens, and the prompt, that stand around the whole.
        num_own: Tokens of the text in it, which are what it weighs.
    """

    encoded: Encoded
    num_own: int


@dataclass(frozen=True, slots=True)
class Length:
    """What to do with an input that has more tokens than the limit.

    Args:
        on_long: `refuse`, `cut`, or `chunk`: embed it in pieces. What is no vector of a text is refused then.
        side: Which end loses tokens when it is cut; special tokens stay.
        limit: Most tokens with special tokens; None means the model's own limit. Never above that, but for `chunk`:
            then the pieces keep the model's limit and this one is for all of them together, None for none.
        overlap: Tokens that a piece shares with the one before; None as the settings say.
        explicit: Whether the call itself says so; else a model that embeds long texts in pieces does that.
    """

    on_long: Literal["refuse", "cut", "chunk"] = "refuse"
    side: Literal["left", "right"] = "right"
    limit: int | None = None
    overlap: int | None = None
    explicit: bool = False


class ReadKey(NamedTuple):
    """How a sequence's hidden states are read; sequences of one batch may differ.

    Args:
        task: Name of a task.
        pooling: Name of the pooling, "" for the checkpoint's own.
        token_id: Only the rows of this token are read; None for those of all tokens.
        route: Which of the checkpoint's routes reads it; "" where it has none.
    """

    task: str
    pooling: str = ""
    token_id: int | None = None
    route: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What the engine hands to a runner: plain arrays and tuples, so that it can cross a process border.

    Args:
        ids: Token ids of all sequences in a row, int32 `[T]`.
        segments: Segment ids, int32 `[T]`, or None where all are 0.
        bounds: Where each sequence starts, and the end, int32 `[S + 1]`.
        skip: Leading tokens that pooling leaves out, int32 `[S]`.
        reads: The read key of each sequence, length `S`.
        attended: How many leading tokens of each sequence are attended to, int32 `[S]`; None where all are.
        keep: Of each sequence, as in `Encoded`; () where no sequence drops a row.
        adapters: Number of the adapter of each sequence, -1 for none, int32 `[S]`; None where none has one.
        shared: How many leading tokens of each sequence begin an earlier one too and are computed there alone, int32
            `[S]`; None where no sequence has any.
        rows: Which of the computed rows is that of each token, int32 `[T]`; None where each token has its own.
    """

    ids: IntArray
    segments: IntArray | None
    bounds: IntArray
    skip: IntArray
    reads: tuple[ReadKey, ...]
    attended: IntArray | None = None
    keep: tuple[IntArray | None, ...] = ()
    adapters: IntArray | None = None
    shared: IntArray | None = None
    rows: IntArray | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def num_seqs(self) -> int:
        return len(self.reads)

    @classmethod
    def pack(cls, encoded: Sequence[Encoded], reads: Sequence[ReadKey]) -> Batch:
        """Lay `encoded` in one row, in the order given."""
        ends = itertools.accumulate((len(e.ids) for e in encoded), initial=0)
        segments: IntArray | None = None
        if any(e.segments is not None for e in encoded):
            segments = np.concatenate(
                [e.segments if e.segments is not None else np.zeros(len(e.ids), np.int32) for e in encoded]
            )
        return cls(
            ids=np.concatenate([e.ids for e in encoded]),
            segments=segments,
            bounds=np.fromiter(ends, np.int32, len(encoded) + 1),
            skip=np.array([e.skip for e in encoded], np.int32),
            reads=tuple(reads),
            attended=_attended(encoded),
            keep=tuple(e.keep for e in encoded) if any(e.keep is not None for e in encoded) else (),
            adapters=_adapters(encoded),
        )

    def part(self, seqs: IntArray) -> Batch:
        """The sequences at the positions `seqs` alone, in that order."""
        lengths, bounds = np.diff(self.bounds)[seqs], np.zeros(len(seqs) + 1, np.int32)
        np.cumsum(lengths, out=bounds[1:])
        tokens_T = np.repeat(self.bounds[seqs] - bounds[:-1], lengths) + np.arange(bounds[-1])
        return Batch(
            ids=self.ids[tokens_T],
            segments=None if self.segments is None else self.segments[tokens_T],
            bounds=bounds,
            skip=self.skip[seqs],
            reads=tuple(self.reads[seq] for seq in seqs),
            attended=None if self.attended is None else self.attended[seqs],
            keep=tuple(self.keep[seq] for seq in seqs) if self.keep else (),
            adapters=None if self.adapters is None else self.adapters[seqs],
        )


def _adapters(encoded: Sequence[Encoded]) -> IntArray | None:
    if all(e.adapter is None for e in encoded):
        return None
    return np.array([-1 if e.adapter is None else e.adapter for e in encoded], np.int32)


def _attended(encoded: Sequence[Encoded]) -> IntArray | None:
    if all(e.attended is None for e in encoded):
        return None
    return np.array([len(e.ids) if e.attended is None else e.attended for e in encoded], np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What a runner gives back for those sequences of a batch that share a read key.

    Args:
        seqs: Positions of the sequences in the batch, int32 `[n]`.
        rows: float32 `[n, D]` where each sequence has one row, else one array per sequence.
    """

    seqs: IntArray
    rows: FloatArray | list[FloatArray]


@dataclass(slots=True)
class Outcome:
    """What a finished call gives back to the door, one entry per input, in input order.

    Args:
        rows: float32 `[N, D]` for tasks with one row per input, else a list of arrays, one per input.
            Rows of inputs in `errors` are NaN (or empty arrays).
        encoded: The tokenised inputs, in input order.
        errors: Position of an input -> why it has no row.
        cached: Positions of the inputs that a cache answered.
        queue_s: Seconds from arrival to the first batch.
        tokenize_s: Seconds spent tokenising.
        inference_s: Seconds in the model, summed over the batches of this call.
    """

    rows: FloatArray | list[FloatArray]
    encoded: list[Encoded]
    errors: dict[int, CenoteError] = field(default_factory=dict)
    cached: frozenset[int] = frozenset()
    queue_s: float = 0.0
    tokenize_s: float = 0.0
    inference_s: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Input tokens after cutting, over all inputs; this is what usage counts."""
        return sum([len(e.ids) for e in self.encoded])

    def num_cached_tokens(self, index: int) -> int:
        """Tokens of the input at `index` if a cache answered it, else 0."""
        return len(self.encoded[index].ids) if index in self.cached else 0

    @property
    def num_truncated(self) -> int:
        """How many inputs were cut."""
        return sum([e.num_cut > 0 for e in self.encoded])

    @property
    def num_cut_tokens(self) -> int:
        """Tokens that were cut off, over all inputs; at least, as in `Encoded.num_cut`."""
        return sum(e.num_cut for e in self.encoded)

    @property
    def num_pieces(self) -> int:
        """In how many pieces the model read all inputs."""
        return sum([e.num_pieces for e in self.encoded])

    def raise_first(self) -> None:
        """Raise the error of the first input that has one; do nothing if all went well."""
        if self.errors:
            raise self.errors[min(self.errors)]
