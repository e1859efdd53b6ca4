"""The engine loop: facts in, plans to the executor, progress back. One thread runs it; others post facts to its inbox.

Knows neither models nor text nor asyncio: a `Sink` gets progress and events. Under a `VirtualClock` with a scripted
inbox the same code replays a recorded run. It blocks in `Executor.collect` whenever nothing is due.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from belady.core.clock import Clock
from belady.core.events import Event
from belady.core.facts import Aborted, Fact, StepResult, Stop
from belady.core.pipeline import Pipeline
from belady.core.plan import StepPlan
from belady.engine.executor import Executor, Progress

_log = logging.getLogger(__name__)


class Inbox(Protocol):
    """Outside facts for the loop."""

    def take(self, now: float) -> list[Fact]:
        """Facts that have happened by `now`, in time order, each handed out once."""
        ...

    def next_at(self) -> float | None:
        """When the next fact is known to come; None when that is unknown or there is none."""
        ...


class Sink(Protocol):
    """Who wants to know what happened. Called on the loop's thread; must be quick."""

    def on_progress(self, plan: StepPlan, progress: Progress) -> Sequence[Stop]:
        """Tokens of one iteration. Returns the rows that these tokens end though the executor did not see it."""
        ...

    def on_failure(self, rids: Sequence[int], error: BaseException | None) -> None:
        """These requests will end with reason `error`; `error` is None when their own logits were not numbers."""
        ...

    def on_events(self, events: Sequence[Event]) -> None: ...

    def flush(self) -> None:
        """End of a turn: hand over what was gathered."""
        ...


class LiveInbox:
    """Facts posted by other threads while the loop runs."""

    def __init__(self, executor: Executor) -> None:
        self._facts: deque[Fact] = deque()
        self._executor = executor

    def put(self, *facts: Fact) -> None:
        """Post facts and wake the loop. Any thread."""
        self._facts.extend(facts)
        self._executor.wake()

    def take(self, now: float) -> list[Fact]:
        taken = []
        while self._facts:
            taken.append(self._facts.popleft())
        return taken

    def next_at(self) -> float | None:
        return None


@dataclass(slots=True)
class _Flight:
    plan: StepPlan
    iterations: int = 0
    seconds: float = 0.0
    has_tokens: bool = False
    tokens: array[int] = field(default_factory=lambda: array("i"))
    stops: list[Stop] = field(default_factory=list)


class EngineLoop:
    """See the module. `turn` waits for something to happen and deals with it."""

    def __init__(
        self, pipeline: Pipeline, executor: Executor, clock: Clock, inbox: Inbox, sink: Sink
    ) -> None:
        self._pipeline = pipeline
        self._executor = executor
        self._clock = clock
        self._inbox = inbox
        self._sink = sink
        self._flights: deque[_Flight] = deque()
        self._stopping = False

    def run(self) -> None:
        """Turn until `stop`. Closes the executor, also when the core raises (which is then raised here)."""
        try:
            while not self._stopping:
                self.turn()
        finally:
            self._executor.close()

    def stop(self) -> None:
        """End `run` soon. Any thread."""
        self._stopping = True
        self._executor.wake()

    @property
    def in_flight(self) -> int:
        """Plans submitted whose end is not known."""
        return len(self._flights)

    def turn(self) -> None:
        """Wait, then apply completions before outside facts of the same moment, plan, and report."""
        progress = self._executor.collect(self._inbox.next_at())
        for item in progress:
            self._on_progress(item)
        facts = self._inbox.take(self._clock.now())
        if facts:
            for fact in facts:
                self._pipeline.feed(fact)
            if self._pipeline.interrupt:
                self._executor.interrupt()
            self._plan()
        self._sink.flush()

    def _plan(self) -> None:
        while (plan := self._pipeline.poll(self._clock.now())) is not None:
            self._flights.append(_Flight(plan))
            self._executor.submit(plan)
        events = self._pipeline.take_events()
        if events:
            self._sink.on_events(events)

    def _on_progress(self, item: Progress) -> None:
        flight = self._flights[0]
        assert flight.plan.step == item.step, (
            f"progress of step {item.step}, but step {flight.plan.step} runs"
        )
        if item.error is not None:
            self._fail(flight, item)
            return
        if item.iteration is not None:
            late = self._sink.on_progress(flight.plan, item)
            flight.iterations += 1
            flight.seconds += item.seconds
            flight.stops.extend((*late, *item.stops))
            if item.tokens is not None:
                flight.has_tokens = True
                flight.tokens.extend(item.tokens)
            if late and not item.done:
                self._executor.interrupt()
        if item.done:
            self._finish(flight, item.at)

    def _finish(self, flight: _Flight, at: float) -> None:
        """Feed the result. Rows whose logits were not numbers are aborted first, lest their KV be kept for others."""
        broken = [s.rid for s in flight.stops if s.reason == "error"]
        if broken:
            self._sink.on_failure(broken, None)
            for rid in broken:
                self._pipeline.feed(Aborted(at, rid, "error"))
        stops = tuple(s for s in flight.stops if s.reason != "error")
        self._feed_result(flight, at, flight.iterations, flight.tokens if flight.has_tokens else None, stops)

    def _fail(self, flight: _Flight, item: Progress) -> None:
        """The executor could not run the plan: its requests end with an error, everything else goes on."""
        plan = flight.plan
        rids = [p.rid for p in plan.prefills] + list(plan.decodes)
        _log.error("step %d failed; %d requests end with an error", plan.step, len(rids), exc_info=item.error)
        self._sink.on_failure(rids, item.error)
        aborts = [Aborted(item.at, rid, "error") for rid in rids]
        if flight.iterations:
            self._feed_result(flight, item.at, flight.iterations, flight.tokens, tuple(flight.stops), aborts)
            return
        for fact in aborts:
            self._pipeline.feed(fact)
        self._feed_result(flight, item.at, 1, None, ())

    def _feed_result(
        self,
        flight: _Flight,
        at: float,
        iterations: int,
        tokens: array[int] | None,
        stops: tuple[Stop, ...],
        then: Sequence[Fact] = (),
    ) -> None:
        self._flights.popleft()
        self._pipeline.feed(StepResult(at, flight.plan.step, iterations, tokens, stops, flight.seconds))
        for fact in then:
            self._pipeline.feed(fact)
        self._plan()
