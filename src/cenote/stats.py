"""What the machine counts: plain numbers under one lock, no exporter. `server/ops` turns a snapshot into metrics."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SEQS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
RATE_WINDOW_S = 10


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of observed values.

    Args:
        bounds: Upper bounds (inclusive) of all buckets but the last, which has none.
        counts: Values in each bucket, not summed up; one more than `bounds`.
        total: Sum of the values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters of one model at one moment; counts since its start.

    Args:
        requests: Calls that were admitted.
        inputs: Inputs of those calls.
        tokens: Tokens that went through the model.
        shared_tokens: Those of them that were computed for another sequence of the batch, which begins alike.
        batches: Batches that went through the model.
        calls_by_end: How admitted calls ended: `ok`, or the kind of an error.
        errors: Errors by kind, of calls (refused ones too) and of single inputs of calls that went on.
        tokens_per_batch, seqs_per_batch: What batches hold.
        queue_s, tokenize_s, inference_s: Seconds of ended calls, as in `Outcome`.
        waiting_seqs, waiting_tokens: What waits for a forward.
        running_seqs: Sequences in the batches that run.
        open_calls: Calls that have not ended.
        tokens_per_s: Tokens through the model, mean of the last `RATE_WINDOW_S` seconds.
        merged: Sequences that got the row of an equal one, which waited or ran.
        cache_hits, cache_misses: Sequences that the cache answered, and that it did not know.
        cache_bytes: Memory of what it keeps.
    """

    requests: int
    inputs: int
    tokens: int
    shared_tokens: int
    batches: int
    calls_by_end: Mapping[str, int]
    errors: Mapping[str, int]
    tokens_per_batch: Histogram
    seqs_per_batch: Histogram
    queue_s: Histogram
    tokenize_s: Histogram
    inference_s: Histogram
    waiting_seqs: int
    waiting_tokens: int
    running_seqs: int
    open_calls: int
    tokens_per_s: float
    merged: int
    cache_hits: int
    cache_misses: int
    cache_bytes: int


class Stats:
    """The counters of one model; every method may be called from any thread.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._requests = self._inputs = self._tokens = self._shared_tokens = self._batches = 0
        self._cache_hits = self._cache_misses = self._merged = 0
        self._ends: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._tokens_per_batch, self._seqs_per_batch = _Counts(TOKENS), _Counts(SEQS)
        self._queue_s, self._tokenize_s, self._inference_s = _Counts(SECONDS), _Counts(SECONDS), _Counts(SECONDS)
        self._rate = _Rate(clock)

    def call_admitted(self, num_inputs: int) -> None:
        """A call of `num_inputs` inputs came in."""
        with self._lock:
            self._requests += 1
            self._inputs += num_inputs

    def call_ended(self, end: str, queue_s: float, tokenize_s: float, inference_s: float) -> None:
        """An admitted call ended: `ok`, or the kind of its error."""
        with self._lock:
            self._ends[end] += 1
            if end != "ok":
                self._errors[end] += 1
                return
            self._queue_s.observe(queue_s)
            self._tokenize_s.observe(tokenize_s)
            self._inference_s.observe(inference_s)

    def error(self, kind: str) -> None:
        """A call was refused, or one input of a call that goes on failed."""
        with self._lock:
            self._errors[kind] += 1

    def batch_ended(self, num_seqs: int, num_tokens: int, num_shared: int = 0) -> None:
        """A batch went through the model, with `num_shared` of its tokens computed for other sequences."""
        with self._lock:
            self._batches += 1
            self._tokens += num_tokens
            self._shared_tokens += num_shared
            self._tokens_per_batch.observe(num_tokens)
            self._seqs_per_batch.observe(num_seqs)
            self._rate.add(num_tokens)

    def cache_asked(self, num_hits: int, num_misses: int) -> None:
        """The cache was asked for sequences: how many it answered, and how many not."""
        with self._lock:
            self._cache_hits += num_hits
            self._cache_misses += num_misses

    def merged(self, num_seqs: int) -> None:
        """Sequences got the row of equal ones."""
        with self._lock:
            self._merged += num_seqs

    def tokens_per_s(self) -> float:
        """Tokens through the model a second, mean of the last `RATE_WINDOW_S` seconds."""
        with self._lock:
            return self._rate.per_s()

    def snapshot(
        self, *, waiting_seqs: int, waiting_tokens: int, running_seqs: int, open_calls: int, cache_bytes: int
    ) -> Snapshot:
        """A copy of all counters, with what their owner knows of its queue."""
        with self._lock:
            return Snapshot(
                requests=self._requests,
                inputs=self._inputs,
                tokens=self._tokens,
                shared_tokens=self._shared_tokens,
                batches=self._batches,
                calls_by_end=dict(self._ends),
                errors=dict(self._errors),
                tokens_per_batch=self._tokens_per_batch.freeze(),
                seqs_per_batch=self._seqs_per_batch.freeze(),
                queue_s=self._queue_s.freeze(),
                tokenize_s=self._tokenize_s.freeze(),
                inference_s=self._inference_s.freeze(),
                waiting_seqs=waiting_seqs,
                waiting_tokens=waiting_tokens,
                running_seqs=running_seqs,
                open_calls=open_calls,
                tokens_per_s=self._rate.per_s(),
                merged=self._merged,
                cache_hits=self._cache_hits,
                cache_misses=self._cache_misses,
                cache_bytes=cache_bytes,
            )


class _Counts:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def freeze(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)


class _Rate:
    """A ring of one slot a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._slots = [0] * RATE_WINDOW_S
        self._start_s = clock()
        self._second = 0

    def add(self, amount: int) -> None:
        self._advance()
        self._slots[self._second % RATE_WINDOW_S] += amount

    def per_s(self) -> float:
        elapsed_s = self._advance()
        # The running second counts only as far as it has gone, and a young ring is not full.
        window_s = RATE_WINDOW_S - 1 + elapsed_s % 1
        return sum(self._slots) / max(min(window_s, elapsed_s), 1.0)

    def _advance(self) -> float:
        elapsed_s = self._clock() - self._start_s
        second = int(elapsed_s)
        for passed in range(self._second + 1, min(second, self._second + RATE_WINDOW_S) + 1):
            self._slots[passed % RATE_WINDOW_S] = 0
        self._second = second
        return elapsed_s
