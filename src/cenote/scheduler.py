"""Which waiting sequences make the next batch. Pure: no thread, no clock, no torch; it is fed and asked.

Whoever uses a `Scheduler` from several threads holds one lock around it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from .types import Encoded, ReadKey

Lane: TypeAlias = Literal["interactive", "bulk"]
"""`interactive` goes first; `bulk` gets what is left, and at least one batch in `BULK_EVERY`."""

C = TypeVar("C", bound=Hashable)
"""What sequences belong to; only compared and hashed here."""

LANES: tuple[Lane, ...] = get_args(Lane)
BULK_EVERY = 4
OLDEST_EVERY = 4
"""One interactive batch in so many starts with what has waited longest, the others with what is shortest."""
FEW_TOKENS, GOOD_TOKENS = 128, 512
"""A batch of fewer tokens costs about the same; from the second on a token costs no less in a larger batch."""
SMALL_TOKENS = 512
"""Most tokens of a bulk batch while the interactive lane is in use, so that nobody waits long for a worker."""
SMALL_BATCHES = 64
"""How many bulk batches stay small after the last interactive one."""


@dataclass(slots=True, eq=False)
class Pending(Generic[C]):
    """One sequence that waits for its forward.

    Args:
        encoded: Its tokens.
        read: How its hidden states are read.
        call: What it belongs to.
        index: The input of the call that it answers.
        chunk: Which of the call's pieces of long inputs it is; None where it is the whole input.
    """

    encoded: Encoded
    read: ReadKey
    call: C
    index: int
    chunk: int | None = None
    num_tokens: int = field(init=False)
    arrival: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self.num_tokens = len(self.encoded.ids)


class Scheduler(Generic[C]):
    """Sequences that wait, in two lanes, each in buckets of equal length.

    A batch starts with one sequence, takes what has the same length, then walks outward to the nearest lengths until
    nothing that waits would still fit. In the bulk lane it starts with the oldest; in the interactive lane with the
    shortest, so that a question does not wait behind a book, but for one in `OLDEST_EVERY`, so that no book starves.
    Equal lengths lie side by side, because the CPU attention shares one call per run of equal lengths.
    """

    def __init__(self) -> None:
        self._lanes: dict[Lane, _Waiting[C]] = {lane: _Waiting() for lane in LANES}
        self._by_call: dict[C, set[Pending[C]]] = {}
        self._num_added = 0
        self._since_bulk = self._since_oldest = 0
        self._num_bulk = SMALL_BATCHES  # bulk batches since the last interactive one

    @property
    def num_waiting(self) -> int:
        """Sequences that wait."""
        return sum(len(lane.by_arrival) for lane in self._lanes.values())

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the sequences that wait."""
        return sum(lane.num_tokens for lane in self._lanes.values())

    def add(self, pendings: Iterable[Pending[C]], lane: Lane = "interactive") -> None:
        """Let `pendings` wait in `lane`, behind all that are there."""
        waiting = self._lanes[lane]
        for pending in pendings:
            pending.arrival = self._num_added
            self._num_added += 1
            waiting.push(pending)
            self._by_call.setdefault(pending.call, set()).add(pending)

    def take(self, max_tokens: int, max_seqs: int) -> list[Pending[C]]:
        """Remove and return the next batch, sorted by length; empty if nothing waits.

        Args:
            max_tokens: Token budget; a sequence that is longer goes alone.
            max_seqs: Most sequences, at least 1.
        """
        lane = self._next_lane()
        if lane is None:
            return []
        if lane == "bulk":
            small = self._num_bulk < SMALL_BATCHES
            self._num_bulk += 1
            taken = self._lanes[lane].take(min(max_tokens, SMALL_TOKENS) if small else max_tokens, max_seqs, "oldest")
        else:
            self._num_bulk = 0
            self._since_oldest = (self._since_oldest + 1) % OLDEST_EVERY
            taken = self._lanes[lane].take(max_tokens, max_seqs, "shortest" if self._since_oldest else "oldest")
        for pending in taken:
            self._forget(pending)
        taken.sort(key=_length_then_arrival)
        return taken

    def drop(self, call: C) -> list[Pending[C]]:
        """Remove and return all that waits for `call`, what came first first."""
        dropped = sorted(self._by_call.get(call, ()), key=lambda pending: pending.arrival)
        for pending in dropped:
            self.withdraw(pending)
        return dropped

    def withdraw(self, pending: Pending[C]) -> None:
        """Remove one that waits."""
        for waiting in self._lanes.values():
            waiting.discard(pending)
        self._forget(pending)

    def _next_lane(self) -> Lane | None:
        interactive, bulk = (bool(self._lanes[lane].by_arrival) for lane in LANES)
        if bulk and (not interactive or self._since_bulk >= BULK_EVERY - 1):
            self._since_bulk = 0
            return "bulk"
        if interactive:
            self._since_bulk = self._since_bulk + 1 if bulk else 0
            return "interactive"
        return None

    def _forget(self, pending: Pending[C]) -> None:
        siblings = self._by_call[pending.call]
        siblings.discard(pending)
        if not siblings:
            del self._by_call[pending.call]


def share(waiting_tokens: int, num_workers: int, *, others_run: bool) -> int:
    """How many of the tokens that wait one worker should take.

    Args:
        others_run: Whether all other workers are busy; else they help at once.
    """
    return max(-(-waiting_tokens // num_workers), GOOD_TOKENS if others_run else FEW_TOKENS)


def _length_then_arrival(pending: Pending[C]) -> tuple[int, int]:
    return pending.num_tokens, pending.arrival


class _Waiting(Generic[C]):
    """One lane. OrderedDict, because it alone removes the first and any other entry in constant time."""

    def __init__(self) -> None:
        self.by_arrival: OrderedDict[int, Pending[C]] = OrderedDict()
        self.num_tokens = 0
        self._buckets: dict[int, OrderedDict[int, Pending[C]]] = {}
        self._lengths: list[int] = []  # keys of _buckets, ascending; no bucket is empty

    def push(self, pending: Pending[C]) -> None:
        bucket = self._buckets.get(pending.num_tokens)
        if bucket is None:
            bucket = self._buckets[pending.num_tokens] = OrderedDict()
            insort(self._lengths, pending.num_tokens)
        bucket[pending.arrival] = pending
        self.by_arrival[pending.arrival] = pending
        self.num_tokens += pending.num_tokens

    def discard(self, pending: Pending[C]) -> None:
        if self.by_arrival.pop(pending.arrival, None) is None:
            return
        self.num_tokens -= pending.num_tokens
        del self._buckets[pending.num_tokens][pending.arrival]
        self._tidy(pending.num_tokens)

    def take(self, max_tokens: int, max_seqs: int, first: Literal["oldest", "shortest"]) -> list[Pending[C]]:
        lengths = self._lengths
        centre = lengths[0] if first == "shortest" else next(iter(self.by_arrival.values())).num_tokens
        room = max(max_tokens, centre)
        above = bisect_left(lengths, centre)
        below = above - 1
        taken: list[Pending[C]] = []
        visited: list[int] = []
        while len(taken) < max_seqs:
            below = bisect_right(lengths, room, 0, below + 1) - 1
            fits_above = above < len(lengths) and lengths[above] <= room
            if not fits_above and below < 0:
                break
            if fits_above and (below < 0 or lengths[above] - centre <= centre - lengths[below]):
                length, above = lengths[above], above + 1
            else:
                length, below = lengths[below], below - 1
            visited.append(length)
            room -= self._pop(length, min(room // max(length, 1), max_seqs - len(taken)), taken)
        for length in visited:
            self._tidy(length)
        return taken

    def _pop(self, length: int, most: int, taken: list[Pending[C]]) -> int:
        bucket = self._buckets[length]
        count = min(most, len(bucket))
        for _ in range(count):
            arrival, pending = bucket.popitem(last=False)
            del self.by_arrival[arrival]
            taken.append(pending)
        self.num_tokens -= count * length
        return count * length

    def _tidy(self, length: int) -> None:
        if not self._buckets[length]:
            del self._buckets[length]
            del self._lengths[bisect_left(self._lengths, length)]
