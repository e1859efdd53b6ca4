"""Runs a parity log in virtual time, one replica: what comes out must equal what any other driver makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from belady.core.events import Event
from belady.core.paritylog import ParityLog
from belady.core.plan import StepPlan
from belady.core.scheduler import Scheduler
from belady.sim.replica import Replica


def run_log(scheduler: Scheduler, log: ParityLog, depth: int = 2) -> tuple[list[StepPlan], list[Event]]:
    """Plans in order of submission, and all events, of a fresh `scheduler` driven until nothing is left to do."""

    def durations(plan: StepPlan, iterations: int) -> Sequence[float]:
        return [log.duration(plan.step, iteration) for iteration in range(iterations)]

    plans: list[StepPlan] = []
    events: list[Event] = []
    replica = Replica(scheduler, durations, log.outputs, depth)
    replica.on_plan = plans.append
    facts, index = log.facts, 0
    while index < len(facts) or replica.ends_at is not None:
        if replica.ends_at is not None and (index == len(facts) or replica.ends_at <= facts[index].at):
            events.extend(replica.poll(replica.complete()))
            continue
        now = facts[index].at
        while index < len(facts) and facts[index].at == now:
            replica.feed(facts[index])
            index += 1
        events.extend(replica.poll(now))
    return plans, events
