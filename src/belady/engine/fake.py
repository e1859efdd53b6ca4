"""An executor without a model: it answers plans with given durations and outputs, on a real or a virtual clock.

Shipped so that anyone can test a driver. Its time line is exact arithmetic: a plan starts when it is submitted or when
the plan before it ends, and iteration i ends `durations(plan, i)` seconds after the one before. On a `VirtualClock`
`collect` moves the clock to whatever comes first; on a real clock it waits for it.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from belady.core.facts import Stop
from belady.core.paritylog import Output
from belady.core.plan import StepPlan
from belady.core.request import Request
from belady.engine.clock import MonotonicClock, VirtualClock
from belady.engine.executor import Progress

Durations = Callable[[StepPlan, int], float]
"""Seconds of iteration i of a plan."""


def recorded(seconds: Sequence[float]) -> Durations:
    """Durations from a recording, by step number, wrapping around; all iterations of a step take equally long."""

    def durations(plan: StepPlan, iteration: int) -> float:
        return seconds[plan.step % len(seconds)]

    return durations


@dataclass(slots=True)
class _Row:
    output: Output
    generated: int


@dataclass(slots=True)
class _Running:
    plan: StepPlan
    sampled: tuple[int, ...]
    iteration: int
    began: float
    ends: float
    """When `iteration` began and will end."""
    seconds: float
    limit: int
    """Iterations to run; an interrupt lowers it."""


class FakeExecutor:
    """See the module. `outputs` says what each request produces; it is asked at every admission of a request and must answer alike."""

    def __init__(
        self,
        clock: MonotonicClock | VirtualClock,
        durations: Durations,
        outputs: Callable[[Request], Output],
    ) -> None:
        self._clock = clock
        self._durations = durations
        self._outputs = outputs
        self._changed = threading.Condition()
        self._queue: deque[tuple[StepPlan, float]] = deque()
        self._running: _Running | None = None
        self._free_at = float("-inf")
        self._woken = False
        self._closed = False
        self._rows: dict[int, _Row] = {}

    def submit(self, plan: StepPlan) -> None:
        with self._changed:
            self._queue.append((plan, self._clock.now()))
            self._changed.notify()

    def collect(self, deadline: float | None) -> list[Progress]:
        with self._changed:
            while True:
                self._start_next()
                run = self._running
                if run is not None and self._due(run) <= self._clock.now():
                    return [self._advance(run)]
                if self._woken or self._closed:
                    self._woken = False
                    return []
                if deadline is not None and self._clock.now() >= deadline:
                    return []
                if not self._wait_for(run, deadline):
                    return []

    def interrupt(self) -> None:
        with self._changed:
            self._start_next()
            run = self._running
            if run is None:
                return
            at_boundary = run.iteration > 0 and run.began >= self._clock.now()
            run.limit = min(run.limit, run.iteration if at_boundary else run.iteration + 1)
            self._changed.notify()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._running = None
            self._changed.notify()

    # -- the time line, under the lock --------------------------------------------------------------------------

    def _start_next(self) -> None:
        if self._running is not None or not self._queue:
            return
        plan, submitted = self._queue.popleft()
        self._apply(plan)
        began = max(submitted, self._free_at)
        seconds = self._durations(plan, 0)
        self._running = _Running(plan, plan.sampled, 0, began, began + seconds, seconds, plan.repeat)

    def _due(self, run: _Running) -> float:
        """When the next progress of `run` is to be reported."""
        return run.began if run.iteration >= run.limit else run.ends

    def _wait_for(self, run: _Running | None, deadline: float | None) -> bool:
        """Let time pass until something may be due; False when nothing ever will be."""
        ends = [t for t in (deadline, None if run is None else self._due(run)) if t is not None]
        until = min(ends) if ends else None
        if isinstance(self._clock, VirtualClock):
            if until is None:
                return False
            self._clock.advance_to(max(until, self._clock.now()))
        else:
            self._changed.wait(None if until is None else self._clock.sleep_for(until))
        return True

    def _advance(self, run: _Running) -> Progress:
        """Report what is due now: an iteration, or the end of a plan that was cut at a boundary."""
        step, iteration = run.plan.step, run.iteration
        if iteration >= run.limit:
            self._finish(run.began)
            return Progress(step=step, at=run.began, iteration=None, done=True)
        tokens, stops = self._draw(run.sampled)
        done = iteration + 1 >= run.limit or bool(stops)
        at, seconds = run.ends, run.seconds
        if done:
            self._finish(at)
        else:
            run.iteration += 1
            run.began = at
            run.seconds = self._durations(run.plan, run.iteration)
            run.ends = at + run.seconds
        return Progress(
            step=step, at=at, iteration=iteration, tokens=tokens, stops=stops, done=done, seconds=seconds
        )

    def _finish(self, at: float) -> None:
        self._running = None
        self._free_at = at

    # -- rows ---------------------------------------------------------------------------------------------------

    def _apply(self, plan: StepPlan) -> None:
        for rid in plan.drops:
            self._rows.pop(rid, None)
        for admit in plan.admits:
            request = admit.request
            self._rows[request.rid] = _Row(self._outputs(request), admit.generated)

    def _draw(self, sampled: Sequence[int]) -> tuple[array[int] | None, tuple[Stop, ...]]:
        drawn: array[int] = array("i")
        stops = []
        values = True
        for rid in sampled:
            row = self._rows[rid]
            tokens = row.output.tokens
            if tokens is None:
                values = False
            else:
                drawn.append(tokens[row.generated % len(tokens)])
            row.generated += 1
            if row.generated == row.output.length:
                stops.append(Stop(rid, row.generated, "stop"))
        return (drawn if values else None), tuple(stops)
