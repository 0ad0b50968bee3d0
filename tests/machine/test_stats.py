from __future__ import annotations

import threading

import pytest

from cenote.stats import RATE_WINDOW_S, Snapshot, Stats


def snapshot(stats: Stats) -> Snapshot:
    return stats.snapshot(waiting_seqs=1, waiting_tokens=2, running_seqs=3, open_calls=4, cache_bytes=5)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_rate_is_the_mean_of_the_last_seconds() -> None:
    clock = Clock()
    stats = Stats(clock)
    for _ in range(5):
        stats.batch_ended(2, 300)
        clock.now_s += 1
    assert stats.tokens_per_s() == pytest.approx(300)
    clock.now_s += 5
    assert stats.tokens_per_s() == pytest.approx(4 * 300 / (RATE_WINDOW_S - 1))
    clock.now_s += 3 * RATE_WINDOW_S
    assert stats.tokens_per_s() == 0


def test_a_young_rate_is_not_exaggerated() -> None:
    clock = Clock()
    stats = Stats(clock)
    clock.now_s += 0.01
    stats.batch_ended(1, 50)
    assert stats.tokens_per_s() == pytest.approx(50)


def test_histogram_bounds_are_inclusive_and_the_last_bucket_is_open() -> None:
    stats = Stats()
    for num_tokens in (16, 17, 10**6):
        stats.batch_ended(1, num_tokens)
    histogram = snapshot(stats).tokens_per_batch
    assert histogram.counts[:2] == (1, 1)
    assert histogram.counts[-1] == 1
    assert len(histogram.counts) == len(histogram.bounds) + 1
    assert (histogram.count, histogram.total) == (3, 16 + 17 + 10**6)


def test_times_count_for_calls_that_went_well() -> None:
    stats = Stats()
    stats.call_ended("ok", 1.0, 2.0, 3.0)
    stats.call_ended("deadline", 100.0, 100.0, 100.0)
    now = snapshot(stats)
    assert dict(now.calls_by_end) == {"ok": 1, "deadline": 1}
    assert dict(now.errors) == {"deadline": 1}
    assert (now.queue_s.total, now.tokenize_s.total, now.inference_s.total) == (1.0, 2.0, 3.0)
    assert (now.waiting_seqs, now.waiting_tokens, now.running_seqs, now.open_calls) == (1, 2, 3, 4)


def test_counts_of_many_threads_add_up() -> None:
    stats = Stats()

    def count() -> None:
        for _ in range(500):
            stats.call_admitted(3)
            stats.batch_ended(1, 7)
            stats.error("too_long")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = snapshot(stats)
    assert (now.requests, now.inputs, now.batches, now.tokens) == (2000, 6000, 2000, 14000)
    assert now.errors == {"too_long": 2000}
