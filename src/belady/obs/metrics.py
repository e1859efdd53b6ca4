"""Prometheus metrics, under names that existing dashboards and routers know, from core events and deltas.

Only what can be filled truthfully is here. Each `Metrics` owns its registry, so that two servers in one process do not
mix. Knows nothing of HTTP and reads no clock: callers pass the time in seconds, on one monotone clock per request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from belady.core.client import Delta, EngineStats, ModelInfo
from belady.core.events import (
    Event,
    Evicted,
    Finished,
    FirstToken,
    HintOutcome,
    Preempted,
    Refused,
    Scheduled,
)

FIRST_TOKEN_BUCKETS = tuple(
    [x / 1000 for x in (1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750)]
    + [1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
)
INTER_TOKEN_BUCKETS = tuple(
    [x / 1000 for x in (10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750)] + [1, 2.5, 5, 7.5, 10, 20, 40, 80]
)
PHASE_BUCKETS = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)


def token_buckets(context_length: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to the context length, in tokens."""
    steps = (m * 10**e for e in range(10) for m in (1, 2, 5))
    return tuple(float(s) for s in steps if s <= context_length)


class _Snapshot(Collector):
    """Gauges read from the engine when somebody asks, and never stored."""

    def __init__(self, prefix: str, labels: Sequence[str], stats: Callable[[], EngineStats]) -> None:
        self._prefix = prefix
        self._labels = list(labels)
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        for name, text, value in (
            ("num_requests_running", "Requests in the batch.", stats.running),
            ("num_requests_waiting", "Requests waiting for room.", stats.waiting),
            ("kv_cache_usage_perc", "Used share (0 to 1) of the busiest KV pool.", stats.usage),
            ("kv_cache_cached_tokens", "Tokens held by the prefix tree.", stats.cached_tokens),
        ):
            family = GaugeMetricFamily(self._prefix + name, text, labels=["model_name", "engine"])
            family.add_metric(self._labels, float(value))
            yield family


class Metrics:
    """All metrics of one server. `observe` may be called from the engine's thread, the rest from the event loop."""

    def __init__(
        self,
        model: ModelInfo,
        stats: Callable[[], EngineStats],
        *,
        namespace: Literal["belady", "vllm"] = "belady",
        engine: str = "0",
    ) -> None:
        self.registry = CollectorRegistry()
        self._prefix = f"{namespace}:"
        self._labels = (model.name, engine)
        self.registry.register(_Snapshot(self._prefix, self._labels, stats))
        self._cache_config(model)
        self._counters()
        self._histograms(token_buckets(model.context_length))
        self._phases = _Phases()

    def render(self) -> bytes:
        """The Prometheus text exposition."""
        return generate_latest(self.registry)

    def observe(self, events: Sequence[Event]) -> None:
        """Count one step's events."""
        for event in events:
            match event:
                case Scheduled():
                    self._scheduled(event)
                case FirstToken():
                    if (seconds := self._phases.first_token(event.rid, event.at)) is not None:
                        self._prefill_time.observe(seconds)
                case Finished():
                    self._finished(event)
                case Refused():
                    self._rejections.labels(*self._labels, event.reason).inc()
                case Preempted():
                    self._preemptions.inc()
                case Evicted():
                    self._evicted.inc(event.tokens)
                case HintOutcome():
                    self._hints.labels(*self._labels, str(event.outcome)).inc()
                case _:
                    pass

    def track(self, now: float) -> RequestTimes:
        """Timings of one request that arrived at `now`, fed with its deltas."""
        return RequestTimes(self, now)

    def _scheduled(self, event: Scheduled) -> None:
        self._phases.scheduled(event.rid, event.at)
        if event.resumed:
            return
        self._queue_time.observe(event.waited)
        local = event.usable - event.loaded
        self._queries.inc(event.prompt_tokens)
        self._hits.inc(local)
        self._prompt_tokens.inc(event.prompt_tokens)
        self._cached.inc(event.usable)
        self._cached_by_source.labels(*self._labels, "device").inc(local)
        if event.loaded:
            self._cached_by_source.labels(*self._labels, "external_unspecified").inc(event.loaded)
        for loss, tokens in event.losses:
            self._lost.labels(*self._labels, str(loss)).inc(tokens)

    def _finished(self, event: Finished) -> None:
        self._success.labels(*self._labels, str(event.reason)).inc()
        self._request_prompt.observe(event.prompt_tokens)
        self._request_generation.observe(event.output_tokens)
        decode, inference = self._phases.finished(event.rid, event.at)
        if decode is not None:
            self._decode_time.observe(decode)
        if inference is not None:
            self._inference_time.observe(inference)

    def _counter(self, name: str, text: str) -> Counter:
        return self._labelled_counter(name, text).labels(*self._labels)

    def _labelled_counter(self, name: str, text: str, *extra: str) -> Counter:
        labels = ("model_name", "engine", *extra)
        return Counter(self._prefix + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        labels = ("model_name", "engine")
        made = Histogram(self._prefix + name, text, labels, registry=self.registry, buckets=buckets)
        return made.labels(*self._labels)

    def _cache_config(self, model: ModelInfo) -> None:
        info = Gauge(
            self._prefix + "cache_config_info",
            "Shape of the KV cache.",
            ("model_name", "engine", "block_size", "num_gpu_blocks"),
            registry=self.registry,
        )
        info.labels(*self._labels, str(model.page_size), str(model.cache_tokens // model.page_size)).set(1)

    def _counters(self) -> None:
        self._queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens found on the device.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of admitted requests.")
        self._cached = self._counter("prompt_tokens_cached", "Prompt tokens that were not computed again.")
        self._cached_by_source = self._labelled_counter(
            "prompt_tokens_cached_by_source",
            "Prompt tokens not computed again, by where they were.",
            "source",
        )
        self._lost = self._labelled_counter(
            "prefix_cache_lost_tokens", "Matched or formerly cached tokens not reused, by reason.", "reason"
        )
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        self._preemptions = self._counter("num_preemptions", "Running requests that gave back their pages.")
        self._success = self._labelled_counter("request_success", "Ended requests.", "finished_reason")
        self._rejections = self._labelled_counter("admission_rejections", "Refused requests.", "reason")
        self._evicted = self._counter("evicted_tokens", "Cached tokens that left the device.")
        self._hints = self._labelled_counter("hint_outcomes", "Answered hints.", "outcome")

    def _histograms(self, tokens: Sequence[float]) -> None:
        make = self._histogram
        self.first_token = make("time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN_BUCKETS)
        self.inter_token = make(
            "inter_token_latency_seconds", "Between tokens of one choice.", INTER_TOKEN_BUCKETS
        )
        self.latency = make("e2e_request_latency_seconds", "Arrival to last token.", PHASE_BUCKETS)
        self._queue_time = make("request_queue_time_seconds", "Arrival to admission.", PHASE_BUCKETS)
        self._prefill_time = make("request_prefill_time_seconds", "Admission to first token.", PHASE_BUCKETS)
        self._decode_time = make("request_decode_time_seconds", "First token to end.", PHASE_BUCKETS)
        self._inference_time = make("request_inference_time_seconds", "Admission to end.", PHASE_BUCKETS)
        self._request_prompt = make("request_prompt_tokens", "Prompt tokens of a request.", tokens)
        self._request_generation = make("request_generation_tokens", "Generated tokens of a request.", tokens)


class _Phases:
    """When each running core request was admitted and when its first token came, on the engine's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._admitted: dict[int, float] = {}
        self._first: dict[int, float] = {}

    def scheduled(self, rid: int, at: float) -> None:
        with self._lock:
            self._admitted.setdefault(rid, at)

    def first_token(self, rid: int, at: float) -> float | None:
        with self._lock:
            admitted = self._admitted.get(rid)
            if admitted is None or rid in self._first:
                return None
            self._first[rid] = at
            return at - admitted

    def finished(self, rid: int, at: float) -> tuple[float | None, float | None]:
        with self._lock:
            admitted, first = self._admitted.pop(rid, None), self._first.pop(rid, None)
        return (None if first is None else at - first), (None if admitted is None else at - admitted)


class RequestTimes:
    """Latencies of one request as its client sees them."""

    def __init__(self, metrics: Metrics, arrived: float) -> None:
        self._metrics = metrics
        self._arrived = arrived
        self._last: dict[int, float] = {}

    def delta(self, delta: Delta, now: float) -> None:
        """Count the tokens of `delta`, which reached the server's edge at `now`."""
        count = len(delta.token_ids)
        if not count:
            return
        self._metrics.generation_tokens.inc(count)
        previous = self._last.get(delta.index)
        if previous is None:
            if not self._last:
                self._metrics.first_token.observe(now - self._arrived)
        else:
            for _ in range(count):
                self._metrics.inter_token.observe((now - previous) / count)
        self._last[delta.index] = now

    def ended(self, now: float) -> None:
        """All choices ended well."""
        self._metrics.latency.observe(now - self._arrived)
