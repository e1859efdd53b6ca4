"""Runs a parity log through the engine loop: scripted inbox, fake executor, virtual clock, nothing real.

What comes out (plans and events) must equal what any other driver makes of the same log.
"""

from __future__ import annotations

from collections.abc import Sequence

from belady.core.events import Event
from belady.core.facts import Fact, Stop
from belady.core.paritylog import ParityLog
from belady.core.pipeline import Pipeline
from belady.core.plan import StepPlan
from belady.core.scheduler import Scheduler
from belady.engine.clock import VirtualClock
from belady.engine.executor import Progress
from belady.engine.fake import FakeExecutor
from belady.engine.loop import EngineLoop


class ScriptedInbox:
    """Facts whose times are known beforehand."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._facts = facts
        self._next = 0

    def take(self, now: float) -> list[Fact]:
        first = self._next
        while self._next < len(self._facts) and self._facts[self._next].at <= now:
            self._next += 1
        return list(self._facts[first : self._next])

    def next_at(self) -> float | None:
        return self._facts[self._next].at if self._next < len(self._facts) else None


class Recorder:
    """A sink that keeps events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_progress(self, plan: StepPlan, progress: Progress) -> Sequence[Stop]:
        return ()

    def on_failure(self, rids: Sequence[int], error: BaseException | None) -> None:
        return None

    def on_events(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def flush(self) -> None:
        return None


class _Recording(FakeExecutor):
    """Keeps the plans in order of submission."""

    def __init__(self, clock: VirtualClock, log: ParityLog) -> None:
        super().__init__(
            clock,
            lambda plan, iteration: log.duration(plan.step, iteration),
            lambda request: log.outputs[request.rid],
        )
        self.plans: list[StepPlan] = []

    def submit(self, plan: StepPlan) -> None:
        self.plans.append(plan)
        super().submit(plan)


def run_log(scheduler: Scheduler, log: ParityLog, depth: int) -> tuple[list[StepPlan], list[Event]]:
    """Plans in order of submission, and all events, of a fresh `scheduler` driven until nothing is left to do."""
    clock = VirtualClock()
    executor = _Recording(clock, log)
    inbox, sink = ScriptedInbox(log.facts), Recorder()
    loop = EngineLoop(Pipeline(scheduler, depth), executor, clock, inbox, sink)
    while inbox.next_at() is not None or loop.in_flight:
        loop.turn()
    return executor.plans, sink.events
