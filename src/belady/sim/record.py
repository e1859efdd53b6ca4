"""What happened in a run, kept small: a line per request, counters, and a thinned series of fleet states.

Translates events; decides nothing. Times are seconds of virtual time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from belady.core.events import (
    Event,
    Evicted,
    Finished,
    FinishReason,
    FirstToken,
    Preempted,
    Refused,
    Scheduled,
)

MAX_SAMPLES = 2000
LIVELOCK = 64
"""Preemptions of one request, without a token in between, after which a run is given up."""


class LivelockError(RuntimeError):
    """A request is preempted again and again without getting anywhere; says which and what to change."""


@dataclass(slots=True)
class RequestRecord:
    """One request: when it reached the API, was first scheduled, drew its first token, ended."""

    arrived: float
    prompt_tokens: int
    replica: int
    scheduled: float | None = None
    first_token: float | None = None
    ended: float | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    outcome: str = "in_flight"
    stuck: int = 0
    """Preemptions since its last token."""


@dataclass(slots=True)
class Samples:
    """Fleet state over time, at most `MAX_SAMPLES` points: when full, every second one goes."""

    interval: float = 0.0
    due: float = 0.0
    at: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    usage: list[float] = field(default_factory=list)
    cached_tokens: list[int] = field(default_factory=list)

    def add(self, now: float, running: int, waiting: int, usage: float, cached: int) -> None:
        """Keep one state; the next one is wanted at `due`."""
        self.at.append(now)
        self.running.append(running)
        self.waiting.append(waiting)
        self.usage.append(usage)
        self.cached_tokens.append(cached)
        if len(self.at) >= MAX_SAMPLES:
            del (
                self.at[1::2],
                self.running[1::2],
                self.waiting[1::2],
                self.usage[1::2],
                self.cached_tokens[1::2],
            )
            self.interval = 2 * max(self.interval, (self.at[-1] - self.at[0]) / MAX_SAMPLES)
        self.due = now + self.interval


class Recorder:
    """Feeds on arrivals and events; `requests` by rid in order of arrival."""

    def __init__(self) -> None:
        self.requests: dict[int, RequestRecord] = {}
        self.samples = Samples()
        self.counts: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.refusals: dict[str, str] = {}
        """An example sentence per reason."""

    def arrived(self, rid: int, at: float, prompt_tokens: int, replica: int) -> None:
        """A request reached the API and was routed."""
        self.requests[rid] = RequestRecord(at, prompt_tokens, replica)

    def apply(self, events: Sequence[Event]) -> list[int]:
        """Take events of one replica, in order; returns the requests that ended."""
        ended: list[int] = []
        requests = self.requests
        for event in events:
            if isinstance(event, FirstToken):
                record = requests[event.rid]
                record.first_token = event.at
                record.stuck = 0
            elif isinstance(event, Scheduled):
                self._scheduled(event)
            elif isinstance(event, Finished):
                self._finished(event)
                ended.append(event.rid)
            elif isinstance(event, Evicted):
                self.counts["evictions"] += 1
                self.counts["evicted_tokens"] += event.tokens
            elif isinstance(event, Preempted):
                self._preempted(event)
            elif isinstance(event, Refused):
                record = requests[event.rid]
                record.outcome, record.ended = "refused", event.at
                self.refusals.setdefault(event.reason, event.detail)
                self.counts[f"refused_{event.reason}"] += 1
                ended.append(event.rid)
        return ended

    def _scheduled(self, event: Scheduled) -> None:
        record = self.requests[event.rid]
        if record.scheduled is None:
            record.scheduled = event.at
            for loss, tokens in event.losses:
                self.losses[str(loss)] += tokens

    def _finished(self, event: Finished) -> None:
        record = self.requests[event.rid]
        aborted = event.reason in (FinishReason.ABORT, FinishReason.ERROR)
        record.outcome = str(event.reason) if aborted else "finished"
        record.ended = event.at
        record.output_tokens = event.output_tokens
        record.cached_tokens = event.cached_tokens
        record.preemptions = event.preemptions

    def _preempted(self, event: Preempted) -> None:
        self.counts["preemptions"] += 1
        self.counts["preempted_tokens"] += event.lost
        record = self.requests[event.rid]
        record.stuck += 1
        if record.stuck >= LIVELOCK and record.first_token is None:
            raise LivelockError(
                f"request {event.rid} was preempted {record.stuck} times without a token: the KV cache is too small "
                "for what runs at once; give it more pages (core.cache_tokens) or lower core.max_running"
            )
