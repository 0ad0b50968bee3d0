"""What the HTTP side counts, and how it and the engines' counters become Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client import Histogram as TimeHistogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ..engine import Engine
    from ..stats import Histogram, Snapshot

_LABEL = ("model_name",)
_COUNTERS = {
    "requests": ("cenote_requests", "Calls that were admitted."),
    "inputs": ("cenote_inputs", "Inputs of admitted calls."),
    "tokens": ("cenote_tokens", "Tokens that went through the model."),
    "shared_tokens": ("cenote_shared_tokens", "Those of them that were computed for a text that begins alike."),
    "batches": ("cenote_batches", "Batches that went through the model."),
    "merged": ("cenote_merged_sequences", "Sequences that got the row of an equal one, which waited or ran."),
    "cache_hits": ("cenote_cache_hits", "Sequences that the cache of rows answered."),
    "cache_misses": ("cenote_cache_misses", "Sequences that the cache of rows did not know."),
}
_BY_KIND = {
    "calls_by_end": ("cenote_calls_ended", "Admitted calls by how they ended: ok, or the kind of an error.", "end"),
    "errors": ("cenote_errors", "Errors by kind, of calls and of single inputs.", "kind"),
}
_HISTOGRAMS = {
    "tokens_per_batch": ("cenote_batch_tokens", "Tokens of a batch."),
    "seqs_per_batch": ("cenote_batch_sequences", "Sequences of a batch."),
    "queue_s": ("cenote_queue_seconds", "Seconds from arrival to the first batch."),
    "tokenize_s": ("cenote_tokenization_seconds", "Seconds spent tokenising a call."),
    "inference_s": ("cenote_inference_seconds", "Seconds of a call in the model."),
}
_GAUGES = {
    "waiting_seqs": ("cenote_waiting_sequences", "Sequences that wait for a forward."),
    "waiting_tokens": ("cenote_waiting_tokens", "Tokens that wait for a forward."),
    "running_seqs": ("cenote_running_sequences", "Sequences in the batches that run."),
    "cache_bytes": ("cenote_cache_bytes", "Memory of the cache of rows."),
    "open_calls": ("cenote_open_calls", "Calls that have not ended."),
    "tokens_per_s": ("cenote_tokens_per_second", "Tokens through the model a second, over the last seconds."),
}


class Traffic:
    """Counters of one application; its metrics live in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.in_flight = 0
        self._children: dict[tuple[str, str, int], tuple[Counter, TimeHistogram]] = {}
        self._requests = Counter(
            "cenote_http_requests", "Answered requests.", ("path", "method", "status"), registry=self.registry
        )
        self._seconds = TimeHistogram(
            "cenote_http_request_seconds", "Seconds from headers to answer.", ("path",), registry=self.registry
        )
        Gauge("cenote_http_in_flight", "Requests being answered.", registry=self.registry).set_function(
            lambda: self.in_flight
        )

    def ended(self, path: str, method: str, status: int, seconds: float) -> None:
        """A request was answered; `path` is the route's, not the client's, so that labels stay few."""
        ended = path, method, status
        if ended not in self._children:
            # Kept, as to look one up takes longer than to count.
            self._children[ended] = self._requests.labels(*ended), self._seconds.labels(path)
        counter, histogram = self._children[ended]
        counter.inc()
        histogram.observe(seconds)


class EngineMetrics(Collector):
    """The counters of all models, read when they are asked for.

    Args:
        engines: Gives the models.
    """

    def __init__(self, engines: Callable[[], Iterable[Engine]]) -> None:
        self._engines = engines

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are known only from `collect`, which needs loaded models."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One family per counter, one sample per model."""
        snapshots = {engine.name: engine.snapshot() for engine in self._engines()}
        for field, (name, text) in _COUNTERS.items():
            yield _plain(CounterMetricFamily(name, text, labels=_LABEL), snapshots, field)
        for field, (name, text) in _GAUGES.items():
            yield _plain(GaugeMetricFamily(name, text, labels=_LABEL), snapshots, field)
        for field, (name, text, label) in _BY_KIND.items():
            yield _by_kind(CounterMetricFamily(name, text, labels=(*_LABEL, label)), snapshots, field)
        for field, (name, text) in _HISTOGRAMS.items():
            yield _histogram(HistogramMetricFamily(name, text, labels=_LABEL), snapshots, field)


def _plain(family: Any, snapshots: Mapping[str, Snapshot], field: str) -> Metric:
    for model, snapshot in snapshots.items():
        family.add_metric((model,), getattr(snapshot, field))
    metric: Metric = family
    return metric


def _by_kind(family: CounterMetricFamily, snapshots: Mapping[str, Snapshot], field: str) -> Metric:
    for model, snapshot in snapshots.items():
        for kind, count in getattr(snapshot, field).items():
            family.add_metric((model, kind), count)
    return family


def _histogram(family: HistogramMetricFamily, snapshots: Mapping[str, Snapshot], field: str) -> Metric:
    for model, snapshot in snapshots.items():
        observed: Histogram = getattr(snapshot, field)
        running, buckets = 0, []
        for bound, count in zip((*map(str, observed.bounds), "+Inf"), observed.counts, strict=True):
            running += count
            buckets.append((bound, running))
        family.add_metric((model,), buckets, observed.total)
    return family
