from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.scheduler import BULK_EVERY, OLDEST_EVERY, SMALL_BATCHES, SMALL_TOKENS, Lane, Pending, Scheduler, share
from cenote.types import Encoded, ReadKey

READ = ReadKey("embed")


def pending(length: int, call: str = "call", index: int = 0) -> Pending[str]:
    return Pending(Encoded(np.zeros(length, np.int32)), READ, call, index)


def lengths(batch: Sequence[Pending[str]]) -> list[int]:
    return [p.num_tokens for p in batch]


class Checked:
    """A scheduler beside the plainest model of one; every step is compared."""

    def __init__(self) -> None:
        self.scheduler: Scheduler[str] = Scheduler()
        self.waiting: dict[Lane, list[Pending[str]]] = {"interactive": [], "bulk": []}
        self.since_bulk = self.since_oldest = 0

    def add(self, sizes: list[int], lane: Lane, call: str) -> None:
        new = [pending(size, call) for size in sizes]
        self.waiting[lane] += new
        self.scheduler.add(new, lane)
        self.compare()

    def drop(self, call: str) -> None:
        gone = [p for lane in self.waiting.values() for p in lane if p.call == call]
        assert self.scheduler.drop(call) == sorted(gone, key=lambda p: p.arrival)
        for lane in self.waiting.values():
            lane[:] = [p for p in lane if p.call != call]
        self.compare()

    def take(self, max_tokens: int, max_seqs: int) -> None:
        batch = self.scheduler.take(max_tokens, max_seqs)
        if not batch:
            assert not any(self.waiting.values())
            return
        lane: Lane = "bulk" if batch[0] in self.waiting["bulk"] else "interactive"
        self._check_lane(lane)
        self._check_first(batch, lane)
        self._check_batch(batch, self.waiting[lane], max_tokens, max_seqs)
        for taken in batch:
            self.waiting[lane].remove(taken)  # raises if it was not waiting, or was taken twice
        self.compare()

    def compare(self) -> None:
        everything = [p for lane in self.waiting.values() for p in lane]
        assert self.scheduler.num_waiting == len(everything)
        assert self.scheduler.waiting_tokens == sum(lengths(everything))

    def _check_lane(self, lane: Lane) -> None:
        if lane == "bulk":
            assert not self.waiting["interactive"] or self.since_bulk == BULK_EVERY - 1
            self.since_bulk = 0
        elif self.waiting["bulk"]:
            self.since_bulk += 1
            assert self.since_bulk < BULK_EVERY
        else:
            self.since_bulk = 0

    def _check_first(self, batch: list[Pending[str]], lane: Lane) -> None:
        oldest = self.waiting[lane][0] in batch
        if lane == "bulk":
            assert oldest
            return
        self.since_oldest = 0 if oldest else self.since_oldest + 1
        assert self.since_oldest < OLDEST_EVERY
        assert oldest or batch[0].num_tokens == min(lengths(self.waiting[lane]))

    @staticmethod
    def _check_batch(batch: list[Pending[str]], waiting: list[Pending[str]], max_tokens: int, max_seqs: int) -> None:
        sizes = lengths(batch)
        assert sizes == sorted(sizes)
        assert len(batch) <= max_seqs
        assert sum(sizes) <= max_tokens or len(batch) == 1
        left = [p for p in waiting if p not in batch]
        for size in set(sizes):
            # Within one length: in order of arrival, and none overtaken.
            arrivals = [p.arrival for p in batch if p.num_tokens == size]
            assert arrivals == sorted(arrivals)
            assert all(p.arrival > arrivals[-1] for p in left if p.num_tokens == size)
        if len(batch) < max_seqs:
            assert all(p.num_tokens > max_tokens - sum(sizes) for p in left)


lanes = st.sampled_from(["interactive", "bulk"])
calls = st.sampled_from("abc")
adds = st.tuples(st.just("add"), st.lists(st.integers(1, 12), min_size=1, max_size=12), lanes, calls)
takes = st.tuples(st.just("take"), st.integers(1, 30), st.integers(1, 8))
drops = st.tuples(st.just("drop"), calls)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(adds, takes, takes, drops), max_size=40))
def test_agrees_with_the_plainest_scheduler(steps: list[tuple[object, ...]]) -> None:
    checked = Checked()
    for name, *arguments in steps:
        getattr(checked, str(name))(*arguments)
    while any(checked.waiting.values()):
        checked.take(16, 4)


def test_same_length_first_then_the_nearest() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.add([pending(size) for size in (10, 3, 10, 12, 9, 50, 10, 8)], "bulk")
    assert lengths(scheduler.take(39, 512)) == [9, 10, 10, 10]
    assert lengths(scheduler.take(23, 512)) == [3, 8, 12]
    assert lengths(scheduler.take(49, 512)) == [50]
    assert scheduler.take(49, 512) == []


def test_longer_than_the_budget_goes_alone() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.add([pending(100), pending(100), pending(1)], "bulk")
    assert [lengths(scheduler.take(64, 512)) for _ in range(3)] == [[100], [100], [1]]


def test_bulk_gets_every_fourth_batch() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.add([pending(1, "bulk") for _ in range(3)], "bulk")
    scheduler.add([pending(1, "interactive") for _ in range(9)])
    served = [scheduler.take(1, 1)[0].call[0] for _ in range(12)]
    assert "".join(served) == "iiibiiibiiib"


def test_interactive_alone_earns_bulk_no_turn() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.add([pending(1, "interactive") for _ in range(8)])
    for _ in range(5):
        scheduler.take(1, 1)
    scheduler.add([pending(1, "bulk")], "bulk")
    assert [scheduler.take(1, 1)[0].call for _ in range(4)] == ["interactive"] * 3 + ["bulk"]


def test_a_question_does_not_wait_behind_a_book_and_the_book_does_not_starve() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.add([pending(8000, "book")])
    taken = []
    for number in range(2 * OLDEST_EVERY):
        scheduler.add([pending(10, f"question {number}")])
        taken.append(scheduler.take(1000, 99)[0].call)
    assert taken[0] == "question 0"
    assert "book" in taken[:OLDEST_EVERY]


def test_bulk_batches_are_small_while_somebody_asks() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.add([pending(SMALL_TOKENS // 2, "bulk") for _ in range(4 * (SMALL_BATCHES + 2))], "bulk")
    full = 4 * (SMALL_TOKENS // 2)
    assert sum(lengths(scheduler.take(full, 99))) == full
    scheduler.add([pending(9, "question")])
    assert [p.call for p in scheduler.take(full, 99)] == ["question"]
    for _ in range(SMALL_BATCHES):
        assert sum(lengths(scheduler.take(full, 99))) == SMALL_TOKENS
    assert sum(lengths(scheduler.take(full, 99))) == full


@pytest.mark.parametrize(
    ("waiting", "num_workers", "others_run", "tokens"),
    [
        (2001, 2, False, 1001),
        (2001, 2, True, 1001),
        (300, 2, False, 150),  # the other one helps
        (300, 2, True, 512),
        (30, 4, False, 128),
        (30, 1, True, 512),
        (4000, 1, True, 4000),
    ],
)
def test_little_is_not_split_and_less_so_where_nobody_is_free(
    waiting: int, num_workers: int, others_run: bool, tokens: int
) -> None:
    assert share(waiting, num_workers, others_run=others_run) == tokens
