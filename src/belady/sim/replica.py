"""One replica in virtual time: the shared pipeline, with plans that take modelled or recorded durations.

Decides nothing: the core plans, `Rows` knows the outputs, and durations come from outside. Whoever owns the clock calls
`feed` and `poll` when facts are due and `complete` at `ends_at`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from belady.core.cost import StepBatch, StepCost
from belady.core.events import Event
from belady.core.facts import Fact, StepResult
from belady.core.paritylog import Output
from belady.core.pipeline import Pipeline
from belady.core.plan import StepPlan
from belady.core.scheduler import Scheduler
from belady.sim.rows import Rows

Durations = Callable[[StepPlan, int], Sequence[float]]
"""Seconds of each of the first n iterations of a plan."""


def modelled(cost: StepCost) -> Durations:
    """Durations from a cost model."""

    def durations(plan: StepPlan, iterations: int) -> Sequence[float]:
        if plan.repeat > 1:
            return cost.decode_run(len(plan.decodes), plan.context_tokens, iterations)
        chunks = [(p.count, p.start) for p in plan.prefills]
        return (cost.seconds(StepBatch(len(plan.decodes), plan.context_tokens, chunks)),)

    return durations


class Replica:
    """`ends_at` is when the running plan completes (None: idle); `busy_seconds` sums what plans took."""

    def __init__(
        self, scheduler: Scheduler, durations: Durations, outputs: Mapping[int, Output], depth: int = 2
    ) -> None:
        self.scheduler = scheduler
        self.ends_at: float | None = None
        self.busy_seconds = 0.0
        self.steps = 0
        self.iterations = 0
        self.on_plan: Callable[[StepPlan], None] | None = None
        """Called with every plan when it is submitted."""
        self._pipeline = Pipeline(scheduler, depth)
        self._durations = durations
        self._rows = Rows(outputs)
        self._queue: deque[StepPlan] = deque()
        self._plan: StepPlan | None = None
        self._seconds: Sequence[float] = ()
        self._ends: Sequence[float] = ()

    @property
    def idle(self) -> bool:
        """No plan runs or waits to run."""
        return self._plan is None

    def feed(self, fact: Fact) -> None:
        """Hand an outside fact to the core; call `poll` when all facts of this time are fed."""
        self._pipeline.feed(fact)

    def poll(self, now: float) -> list[Event]:
        """Let the core plan; start or queue what it wants run, cut a running repeat plan short when a fact waits.

        Returns the events since the last call. May change `ends_at`.
        """
        pipeline = self._pipeline
        if pipeline.interrupt:
            self._cut(now)
        while (plan := pipeline.poll(now)) is not None:
            self.steps += 1
            if self.on_plan is not None:
                self.on_plan(plan)
            if self._plan is None:
                self._start(plan, now)
            else:
                self._queue.append(plan)
        return pipeline.take_events()

    def complete(self) -> float:
        """The running plan is done at `ends_at`: feed its result and start the next one. Returns that time; call `poll`
        at it."""
        plan, ends, at = self._plan, self._ends, self.ends_at
        assert plan is not None and at is not None
        tokens, stops = self._rows.finish(plan, len(ends))
        seconds = self._seconds[0] if len(ends) == 1 else sum(self._seconds[: len(ends)])
        self.busy_seconds += seconds
        self.iterations += len(ends)
        self._plan = self.ends_at = None
        if self._queue:
            self._start(self._queue.popleft(), at)
        self._pipeline.feed(StepResult(at, plan.step, len(ends), tokens, stops, seconds))
        return at

    def _start(self, plan: StepPlan, now: float) -> None:
        self._rows.begin(plan)
        self._plan = plan
        seconds = self._seconds = self._durations(plan, self._rows.iterations(plan))
        self._ends = (now + seconds[0],) if len(seconds) == 1 else list(accumulate(seconds, initial=now))[1:]
        self.ends_at = self._ends[-1]

    def _cut(self, now: float) -> None:
        """End the running plan at its first iteration boundary at or after `now`."""
        for index, end in enumerate(self._ends):
            if end >= now:
                self._ends = self._ends[: index + 1]
                self.ends_at = end
                return
