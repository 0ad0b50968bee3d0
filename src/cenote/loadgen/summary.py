"""What a run comes to: rates, percentiles of latency, failures by kind, and how it went over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .client import TIMINGS, Sample
from .drive import Measured

PERCENTILES: Final = (50, 90, 95, 99)
_MOST_WINDOWS: Final = 60


@dataclass(frozen=True)
class Window:
    """A stretch of a run in seconds, its answers a second, and percentiles of their latency, if any."""

    start_s: float
    end_s: float
    requests_per_s: float
    latency_ms: dict[str, float]


@dataclass(frozen=True)
class Failures:
    """Requests that failed in one way: how many, and what the first one said."""

    count: int
    first: str


@dataclass(frozen=True)
class Summary:
    """A run in figures. Rates and latency are of answered requests; each request is answered or failed.

    Args:
        load: How requests followed each other.
        seconds: From the start to the last end.
        requests, answered, failed: How many.
        texts: Of answered requests.
        tokens: That the server says it read for them; None where it does not say so each time.
        requests_per_s, texts_per_s, tokens_per_s: Over `seconds`.
        latency_ms: `p50`, `p90`, `p95`, `p99`, `mean` and `max`; empty where nothing was answered.
        failures: By kind.
        server_ms: Percentiles of the server's own times by name, where it tells them.
        late_ms: How late requests were sent (`p50`, `p99`, `max`); it counts as latency.
        cpu_share: Of one processor, what the load generator used.
        warmup_requests, warmup_failed: Of the warm-up; they count nowhere else.
        windows: How it went.
    """

    load: str
    seconds: float
    requests: int
    answered: int
    failed: int
    texts: int
    tokens: int | None
    requests_per_s: float
    texts_per_s: float
    tokens_per_s: float | None
    latency_ms: dict[str, float]
    failures: dict[str, Failures]
    server_ms: dict[str, dict[str, float]]
    late_ms: dict[str, float]
    cpu_share: float
    warmup_requests: int
    warmup_failed: int
    windows: list[Window]


def summarise(measured: Measured) -> Summary:
    """The figures of a run."""
    samples = measured.samples
    good = [sample for sample in samples if not sample.error]
    seconds = max((sample.ended_s for sample in samples), default=measured.began_s) - measured.began_s
    per_s = 1 / seconds if seconds > 0 else 0.0
    counted = [sample.num_tokens for sample in good if sample.num_tokens is not None]
    tokens = sum(counted) if counted and len(counted) == len(good) else None
    num_texts = sum(sample.num_texts for sample in good)
    return Summary(
        load=measured.load.label,
        seconds=seconds,
        requests=len(samples),
        answered=len(good),
        failed=len(samples) - len(good),
        texts=num_texts,
        tokens=tokens,
        requests_per_s=len(good) * per_s,
        texts_per_s=num_texts * per_s,
        tokens_per_s=None if tokens is None else tokens * per_s,
        latency_ms=_latency(good),
        failures=_failures(samples),
        server_ms=_server(good),
        late_ms=_spread([(sample.sent_s - sample.due_s) * 1e3 for sample in samples], (50, 99), "max"),
        cpu_share=measured.cpu_s * per_s,
        warmup_requests=len(measured.warmup),
        warmup_failed=sum(bool(sample.error) for sample in measured.warmup),
        windows=_windows(good, measured.began_s, seconds),
    )


def _latency(good: Sequence[Sample]) -> dict[str, float]:
    return _spread([(sample.ended_s - sample.due_s) * 1e3 for sample in good], PERCENTILES, "mean", "max")


def _spread(values: Sequence[float], percentiles: Sequence[int], *more: str) -> dict[str, float]:
    if not values:
        return {}
    found = {f"p{at}": float(value) for at, value in zip(percentiles, np.percentile(values, percentiles), strict=True)}
    return {**found, **{name: float(getattr(np, name)(values)) for name in more}}


def _failures(samples: Sequence[Sample]) -> dict[str, Failures]:
    counts = Counter(sample.error for sample in samples if sample.error)
    first = {sample.error: sample.said for sample in reversed(samples)}
    return {kind: Failures(count, first[kind]) for kind, count in counts.most_common()}


def _server(good: Sequence[Sample]) -> dict[str, dict[str, float]]:
    told = {name: [sample.server_ms[name] for sample in good if name in sample.server_ms] for name in TIMINGS}
    return {name: _spread(values, PERCENTILES, "max") for name, values in told.items() if values}


def _windows(good: Sequence[Sample], began_s: float, seconds: float) -> list[Window]:
    """By when answers came; none where nothing was answered."""
    if not good:
        return []
    count = int(np.clip(seconds, 1, _MOST_WINDOWS))
    width_s = seconds / count
    ended = np.array([sample.ended_s - began_s for sample in good])
    latency_ms = np.array([(sample.ended_s - sample.due_s) * 1e3 for sample in good])
    places = np.minimum((ended / width_s).astype(int), count - 1)
    windows = []
    for at in range(count):
        here = latency_ms[places == at].tolist()
        windows.append(Window(at * width_s, (at + 1) * width_s, len(here) / width_s, _spread(here, (50, 95, 99))))
    return windows
