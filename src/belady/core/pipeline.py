"""When to plan. Both drivers ask this object, so that they plan at the same moments from the same facts.

Knows no clock and does not wait: it is fed facts in time order and polled. Plans run strictly in order of submission.
"""

from __future__ import annotations

from belady.core.events import Event
from belady.core.facts import Fact, StepResult
from belady.core.plan import StepPlan
from belady.core.scheduler import Scheduler


class Pipeline:
    """At most `depth` plans in flight: 2 plans the next step while one runs, 1 does not overlap."""

    def __init__(self, scheduler: Scheduler, depth: int = 2) -> None:
        assert depth >= 1
        self._scheduler = scheduler
        self._depth = depth
        self._facts: list[Fact] = []
        self._events: list[Event] = []
        self._in_flight = 0
        self._repeating = False
        self._idle = True

    @property
    def in_flight(self) -> int:
        """Plans submitted whose result has not been fed."""
        return self._in_flight

    @property
    def interrupt(self) -> bool:
        """A running repeat plan should end at its next iteration boundary."""
        return self._repeating and bool(self._facts)

    def feed(self, fact: Fact) -> None:
        """Hand over one fact; planning happens in `poll`."""
        self._facts.append(fact)
        self._idle = False
        if isinstance(fact, StepResult):
            self._in_flight -= 1
            self._repeating = False

    def poll(self, now: float) -> StepPlan | None:
        """The next plan to submit, or None until another fact is fed. Call again after each plan."""
        if self._idle or self._repeating or self._in_flight >= self._depth:
            return None
        facts, self._facts = self._facts, []
        plan = self._scheduler.step(facts, now)
        self._events.extend(plan.events)
        if not plan.has_rows:
            self._idle = True
            return None
        self._in_flight += 1
        self._repeating = plan.repeat > 1
        return plan

    def take_events(self) -> list[Event]:
        """Events since the last call, in order."""
        events, self._events = self._events, []
        return events
