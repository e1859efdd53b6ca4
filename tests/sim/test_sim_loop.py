"""The virtual driver: conservation, time, work, determinism, and what policies must not see."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import pytest

from belady.core.config import CoreConfig, GroupConfig
from belady.core.cost import StepBatch
from belady.core.events import Preempted
from belady.core.facts import Fact
from belady.core.paritylog import Output
from belady.core.plan import StepPlan
from belady.core.request import Request
from belady.core.scheduler import Scheduler
from belady.policy.registry import load
from belady.policy.route.view import ReplicaView, RoutePolicy
from belady.sim.loop import Simulation
from belady.sim.record import LIVELOCK, LivelockError, Recorder
from belady.sim.replica import modelled
from belady.sim.workload import Call
from belady.sim.workload.base import Limits
from belady.sim.workload.synthetic import SyntheticConfig, synthetic
from belady.sim.workload.trace import OpenLoop

STEP = 2.0**-8
"""Seconds per iteration: a binary fraction, so that sums of it are exact."""


class Constant:
    """Every iteration takes `STEP`, whatever it holds."""

    def seconds(self, batch: StepBatch) -> float:
        return STEP

    def decode_run(self, decodes: int, context: int, iterations: int) -> Sequence[float]:
        return [STEP] * iterations


class Linear:
    """Prefill and decode tokens cost the same."""

    def seconds(self, batch: StepBatch) -> float:
        return STEP + 1e-5 * (batch.decodes + sum(chunk for chunk, _ in batch.prefill))

    def decode_run(self, decodes: int, context: int, iterations: int) -> Sequence[float]:
        return [STEP + 1e-5 * decodes] * iterations


def core(
    pages: int = 4096, running: int = 1, step_tokens: int = 64, repeat: int = 64, context: int = 10**5
) -> CoreConfig:
    return CoreConfig(
        groups=(GroupConfig(name="full", pages=pages),),
        page_size=16,
        max_context=context,
        max_running=running,
        step_tokens=step_tokens,
        max_repeat=repeat,
    )


def call(rid: int, at: float, output: int, prompt: int = 1, most: int | None = None) -> Call:
    request = Request(
        rid=rid,
        prompt=array("i", range(rid * 1000, rid * 1000 + prompt)).tobytes(),
        prompt_tokens=prompt,
        max_tokens=output if most is None else most,
    )
    return Call(at, request, Output(length=output))


def simulate(
    calls: Sequence[Call], config: CoreConfig, *, replicas: int = 1, router: RoutePolicy | None = None
) -> Simulation:
    source = OpenLoop(calls, Limits(max_context=config.max_context))
    schedulers = [Scheduler(config, evict=load("evict", "lru")) for _ in range(replicas)]
    sim = Simulation(schedulers, modelled(Constant()), source, router or load("route", "round_robin"))
    sim.run()
    sim.check_integrity()
    return sim


# -- queueing: a server with waiting work and room is not idle ---------------------------------------------------------


def poisson(
    count: int, load_share: float, lengths: Iterator[int], mean: float, servers: int = 1
) -> list[Call]:
    """Arrivals at the rate that keeps `servers` busy for `load_share` of the time."""
    rng = random.Random(7)
    rate = load_share * servers / (mean * STEP)
    at, calls = 0.0, []
    for rid in range(count):
        at += rng.expovariate(rate)
        calls.append(call(rid, at, next(lengths)))
    return calls


def geometric(mean: float) -> Iterator[int]:
    rng = random.Random(11)
    while True:
        yield max(1, math.ceil(math.log(1 - rng.random()) / math.log(1 - 1 / mean)))


def constant(length: int) -> Iterator[int]:
    while True:
        yield length


@pytest.mark.parametrize("kind", ["M/M/1", "M/D/1"])
def test_one_server_queue(kind: str) -> None:
    """Every departure follows from the one before (Lindley), and the mean wait is that of Pollaczek and Khinchine.

    A request that arrives while one before is about to end may begin in the very step in which that one draws its last
    token: a step less, and rare.
    """
    mean, share, count = 300.0, 0.6, 5000
    calls = poisson(count, share, geometric(mean) if kind == "M/M/1" else constant(int(mean)), mean)
    records = simulate(calls, core(repeat=10_000)).recorder.requests
    free, waits, shared = 0.0, [], 0
    for one in calls:
        assert one.output.length is not None
        start = max(one.at, free)
        ended = records[one.request.rid].ended
        assert ended is not None
        steps = (ended - start) / STEP
        assert min(abs(steps - one.output.length), abs(steps - one.output.length + 1)) < 1e-6
        if steps < one.output.length - 0.5:
            assert one.at < free, "only a request that waited can share a step"
            shared += 1
        waits.append(start - one.at)
        free = ended
    assert shared < 0.02 * count
    second_moment = 2 * mean**2 - mean if kind == "M/M/1" else mean**2
    expected = share / (mean * STEP) * second_moment * STEP**2 / (2 * (1 - share))
    assert sum(waits) / count == pytest.approx(expected, rel=0.12)


def test_many_slots_queue() -> None:
    """M/M/k: k rows run at once and every iteration takes equally long. An arrival may wait for an iteration to end, so
    each departure lies within a few steps of the ideal queue's; drift would show as a lasting difference."""
    slots, mean, count = 4, 50.0, 3000
    calls = poisson(count, 0.7, geometric(mean), mean, slots)
    records = simulate(calls, core(running=slots)).recorder.requests
    free = [0.0] * slots
    late = []
    for one in calls:
        assert one.output.length is not None
        end = max(one.at, heappop(free)) + one.output.length * STEP
        heappush(free, end)
        ended = records[one.request.rid].ended
        assert ended is not None
        late.append(ended - end)
    assert min(late) > -1e-6 - 8 * STEP and max(late) < 12 * STEP
    assert sum(late) / count < 2.5 * STEP


def test_an_idle_server_starts_at_once() -> None:
    records = simulate([call(0, 1.0, 4), call(1, 9.0, 4)], core()).recorder.requests
    assert [(r.scheduled, r.first_token, r.ended) for r in records.values()] == [
        (1.0, 1.0 + STEP, 1.0 + 4 * STEP),
        (9.0, 9.0 + STEP, 9.0 + 4 * STEP),
    ]


@pytest.mark.parametrize("repeat", [1, 2, 7, 64])
def test_jumping_over_iterations_changes_no_time(repeat: int) -> None:
    calls = poisson(150, 0.8, geometric(30.0), 30.0, 4)
    ends = [
        {
            rid: r.ended or 0.0
            for rid, r in simulate(calls, core(running=4, repeat=n)).recorder.requests.items()
        }
        for n in (repeat, 1000)
    ]
    assert all(ends[0].values()) and all(ends[1].values())
    assert ends[0].keys() == ends[1].keys() and len(ends[0]) == 150
    slack = 3 * STEP  # where planning is overlapped, an arrival is seen by the step after the next
    assert all(abs(ends[0][rid] - ends[1][rid]) <= slack * 4 for rid in ends[0])


def test_a_run_of_iterations_ends_where_somebody_arrives() -> None:
    sim = simulate([call(0, 0.0, 200), call(1, 10.5 * STEP, 1)], core(running=2, repeat=1000))
    late = sim.recorder.requests[1]
    assert late.scheduled == 11 * STEP and late.ended == 12 * STEP
    assert sim.recorder.requests[0].ended == 200 * STEP


# -- conservation and order --------------------------------------------------------------------------------------------


class Checked(Scheduler):
    """Integrity after every step, and time that never goes back."""

    last = 0.0
    steps = 0

    def step(self, facts: Sequence[Fact], now: float) -> StepPlan:
        assert now >= self.last
        self.last = now
        self.steps += 1
        plan = super().step(facts, now)
        self.check_integrity()
        return plan


def agents(
    seed: int, replicas: int = 2, scheduler: type[Scheduler] = Scheduler, **shape: object
) -> Simulation:
    limits = Limits(max_context=3000)
    values = {"sessions": 12, "turns": 4, "system_tokens": 200, "role_tokens": 50, "concurrent": 6, **shape}
    config = SyntheticConfig(**values)  # type: ignore[arg-type]
    source = synthetic(config, limits, seed=seed, time_scale=1.0)
    settings = core(pages=300, running=6, step_tokens=256, context=3000)
    return Simulation(
        [scheduler(settings, evict=load("evict", "lru")) for _ in range(replicas)],
        modelled(Linear()),
        source,
        load("route", "prefix_affinity"),
    )


def test_pages_add_up_after_every_step() -> None:
    sim = agents(3, scheduler=Checked)
    sim.run()
    sim.check_integrity()
    assert sim.recorder.counts["evictions"] > 0, "the cache must have been fought over"
    assert all(s.replica.scheduler.steps > 10 for s in sim.servers)  # type: ignore[attr-defined]


def test_every_request_ends_in_exactly_one_way() -> None:
    sim = agents(5)
    ended: list[int] = []
    sim.run(ended.append)
    records = sim.recorder.requests.values()
    outcomes = [r.outcome for r in records]
    assert len(outcomes) == 48 == sum(ended)
    assert set(outcomes) <= {"finished", "refused"}
    for r in records:
        if r.outcome == "finished":
            assert r.scheduled is not None and r.first_token is not None and r.ended is not None
            assert r.arrived <= r.scheduled < r.first_token <= r.ended


def test_what_can_never_run_is_refused_and_counted() -> None:
    sim = simulate([call(0, 0.0, 5, prompt=200), call(1, 0.0, 5, prompt=20)], core(context=100))
    assert [r.outcome for r in sim.recorder.requests.values()] == ["refused", "finished"]
    assert "context window" in sim.recorder.refusals["too_long"]


def test_calls_of_one_moment_are_planned_together() -> None:
    sim = simulate([call(rid, 1.0, 3) for rid in range(4)], core(running=4))
    assert {r.scheduled for r in sim.recorder.requests.values()} == {1.0}
    assert {r.ended for r in sim.recorder.requests.values()} == {1.0 + 3 * STEP}


def test_time_before_the_server_counts_into_latency() -> None:
    source = OpenLoop([call(0, 1.0, 2)], Limits(max_context=100))
    schedulers = [Scheduler(core(), evict=load("evict", "lru"))]
    sim = Simulation(
        schedulers, modelled(Constant()), source, load("route", "round_robin"), request_seconds=0.5
    )
    sim.run()
    record = sim.recorder.requests[0]
    assert record.arrived == 1.0 and record.ended == 1.5 + 2 * STEP


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    runs = []
    for seed in (1, 1, 2):
        sim = agents(seed)
        sim.run()
        runs.append((sim.now, sim.recorder))
    assert runs[0][0] == runs[1][0] != runs[2][0]
    assert runs[0][1].requests == runs[1][1].requests != runs[2][1].requests


def test_load_seen_by_routers_returns_to_zero() -> None:
    seen: list[int] = []

    class Watch:
        def route(self, request: Request, replicas: Sequence[ReplicaView], now: float) -> int:
            seen.extend(r.pending_tokens for r in replicas)
            assert all(r.pending_tokens >= 0 and r.requests >= 0 for r in replicas)
            return request.rid % 2

    calls = [call(rid, rid * STEP, 20, prompt=300) for rid in range(40)]
    sim = simulate(calls, core(running=4, step_tokens=32), replicas=2, router=Watch())
    assert max(seen) > 300
    assert [s.pending_tokens for s in sim.servers] == [0, 0]
    assert {r.replica for r in sim.recorder.requests.values()} == {0, 1}


# -- what policies must not see ----------------------------------------------------------------------------------------


class Guard:
    """True while core or policies decide."""

    deciding = False
    decisions = 0


@dataclass
class Poisoned:
    """An output that may be read by the executor only."""

    guard: Guard
    true_length: int
    tokens: None = None

    @property
    def length(self) -> int:
        assert not self.guard.deciding, "the true output length was read while deciding"
        return self.true_length


def test_core_and_policies_never_read_the_true_output_length() -> None:
    guard = Guard()

    class Watched(Scheduler):
        def step(self, facts: Sequence[Fact], now: float) -> StepPlan:
            guard.deciding = True
            guard.decisions += 1
            try:
                return super().step(facts, now)
            finally:
                guard.deciding = False

    inner = load("route", "prefix_affinity")

    class WatchedRouter:
        def route(self, request: Request, replicas: Sequence[ReplicaView], now: float) -> int:
            guard.deciding = True
            try:
                return int(inner.route(request, replicas, now))
            finally:
                guard.deciding = False

    calls = [
        Call(one.at, one.request, Poisoned(guard, 5 + one.request.rid % 7))  # type: ignore[arg-type]
        for one in (call(rid, rid * 3 * STEP, 1, prompt=40, most=50) for rid in range(60))
    ]
    schedulers = [Watched(core(pages=64, running=4), evict=load("evict", "lru")) for _ in range(2)]
    source = OpenLoop(calls, Limits(max_context=1000))
    sim = Simulation(schedulers, modelled(Constant()), source, WatchedRouter())
    sim.run()
    assert guard.decisions > 60
    lengths = [r.output_tokens for r in sim.recorder.requests.values()]
    assert lengths == [5 + rid % 7 for rid in range(60)], "and yet the true lengths came out"
    guard.deciding = True
    with pytest.raises(AssertionError, match="while deciding"):
        _ = calls[0].output.length


def test_a_request_that_gets_nowhere_is_reported() -> None:
    recorder = Recorder()
    recorder.arrived(1, 0.0, 10, 0)
    with pytest.raises(LivelockError, match=r"request 1 .*cache_tokens"):
        recorder.apply([Preempted(0.0, 1, 10)] * LIVELOCK)
