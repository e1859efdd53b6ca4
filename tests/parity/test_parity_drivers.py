"""The engine loop and the simulator make the same plans and events of the same outside facts.

Both are given arrivals, aborts, durations and outputs; step results, plans and events each makes itself.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parity_logs import configs, logs

from belady.core.config import CoreConfig, GroupConfig
from belady.core.events import Event, Evicted, Finished, FinishReason, Preempted, Refused, Scheduled
from belady.core.facts import Aborted, Arrived
from belady.core.paritylog import Output, ParityLog
from belady.core.plan import StepPlan
from belady.core.request import Request
from belady.core.scheduler import Scheduler
from belady.engine import replay as engine
from belady.policy import registry
from belady.sim import replay as sim

Result = tuple[list[StepPlan], list[Event]]
DEPTHS = pytest.mark.parametrize("depth", [1, 2, 3])


def run_both(config: CoreConfig, log: ParityLog, depth: int, evict: str = "lru") -> Result:
    """Plans and events of the engine, after checking that the simulator has the same and that nothing leaks."""
    ours = Scheduler(config, evict=registry.load("evict", evict))
    theirs = Scheduler(config, evict=registry.load("evict", evict))
    plans, events = engine.run_log(ours, log, depth)
    other_plans, other_events = sim.run_log(theirs, log, depth)
    for mine, other in zip(plans, other_plans, strict=False):
        assert mine == other
    for mine_event, other_event in zip(events, other_events, strict=False):
        assert mine_event == other_event
    assert (len(plans), len(events)) == (len(other_plans), len(other_events))
    for scheduler in (ours, theirs):
        scheduler.check_integrity()
        assert scheduler.running == scheduler.waiting == 0
    arrived = {fact.request.rid for fact in log.facts if isinstance(fact, Arrived)}
    assert Counter(e.rid for e in events if isinstance(e, Finished | Refused)) == Counter(arrived)
    return plans, events


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs(), logs(), st.sampled_from([1, 2, 3]), st.sampled_from(["lru", "clairvoyant"]))
def test_any_log(config: CoreConfig, log: ParityLog, depth: int, evict: str) -> None:
    run_both(config, log, depth, evict)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs(), logs(), st.sampled_from([1, 2, 3]), st.sampled_from(["lru", "clairvoyant"]))
def test_any_log_long(config: CoreConfig, log: ParityLog, depth: int, evict: str) -> None:
    run_both(config, log, depth, evict)


def busy_log(requests: int = 40) -> ParityLog:
    """Bursts of three agents with growing contexts, two priorities, aborts in the middle."""
    facts: list[Arrived | Aborted] = []
    outputs = {}
    for rid in range(requests):
        agent, turn = rid % 3, rid // 3
        prompt = array("i", [agent] * 8 + [7 * agent + i for i in range(6 * (turn % 6))] + [rid])
        at = turn * 0.75
        facts.append(
            Arrived(
                at,
                Request(
                    rid=rid,
                    prompt=prompt.tobytes(),
                    prompt_tokens=len(prompt),
                    max_tokens=30,
                    priority=rid % 2,
                    program=f"agent{agent}",
                ),
            )
        )
        if rid % 7 == 6:
            facts.append(Aborted(at + 1.0, rid))
        outputs[rid] = Output(length=5 + rid % 40, tokens=(agent, rid % 5, 9))
    facts.sort(key=lambda fact: fact.at)
    return ParityLog(facts=tuple(facts), durations=((0.25, 0.125), (0.5,), (0.0625,)), outputs=outputs)


def busy_config(*, window: bool) -> CoreConfig:
    groups = [GroupConfig(name="full", pages=40)]
    if window:
        groups.append(GroupConfig(name="window", pages=24, window=12))
    return CoreConfig(groups=tuple(groups), page_size=4, max_context=128, max_running=6, step_tokens=24)


@DEPTHS
@pytest.mark.parametrize("window", [False, True], ids=["full", "window"])
def test_busy_log_has_everything(depth: int, window: bool) -> None:
    """Not vacuous: the log makes the core evict, preempt, abort, stop, repeat, reuse and copy."""
    plans, events = run_both(busy_config(window=window), busy_log(), depth)
    kinds = Counter(type(event) for event in events)
    assert kinds[Evicted] and kinds[Preempted]
    reasons = Counter(event.reason for event in events if isinstance(event, Finished))
    assert all(reasons[r] for r in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT))
    assert any(event.usable for event in events if isinstance(event, Scheduled))
    assert any(plan.repeat > 1 for plan in plans)
    assert any(plan.copies for plan in plans)
    assert any(plan.trims for plan in plans) == window


def test_overlap_plans_ahead() -> None:
    """With depth 2 a late stop wastes rows, which depth 1 never does: the two really differ."""
    shallow, _ = run_both(busy_config(window=False), busy_log(), 1)
    deep, _ = run_both(busy_config(window=False), busy_log(), 2)
    assert [dataclasses.replace(p, events=()) for p in shallow] != [
        dataclasses.replace(p, events=()) for p in deep
    ]
