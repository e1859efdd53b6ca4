"""The shipped fake executor: exact times, interrupts at boundaries, both clocks."""

from __future__ import annotations

import threading
from array import array

import pytest

from belady.core.paritylog import Output
from belady.core.plan import Admit, Prefill, StepPlan
from belady.core.request import Request
from belady.engine.clock import MonotonicClock, VirtualClock
from belady.engine.fake import FakeExecutor, recorded


def request(rid: int) -> Request:
    return Request(rid=rid, prompt=array("i", [1, 2]).tobytes(), prompt_tokens=2, max_tokens=50)


def admit(step: int, *rids: int) -> StepPlan:
    return StepPlan(
        step,
        admits=tuple(Admit(request(rid), 0, ((0,),)) for rid in rids),
        prefills=tuple(Prefill(rid, 0, 2, True) for rid in rids),
    )


def fake(
    clock: VirtualClock | MonotonicClock, length: int | None = None, seconds: float = 0.5
) -> FakeExecutor:
    return FakeExecutor(clock, recorded([seconds]), lambda r: Output(length=length, tokens=(10, 11, 12)))


def test_plans_run_one_after_the_other() -> None:
    clock = VirtualClock(1.0)
    executor = fake(clock)
    executor.submit(admit(1, 7, 8))
    executor.submit(StepPlan(2, decodes=(8, 7)))
    (first,) = executor.collect(None)
    assert (first.step, first.at, first.done, list(first.tokens or [])) == (1, 1.5, True, [10, 10])
    (second,) = executor.collect(5.0)
    assert (second.step, second.at, list(second.tokens or [])) == (2, 2.0, [11, 11])
    assert executor.collect(5.0) == [] and clock.now() == 5.0
    assert executor.collect(None) == []


def test_repeat_ends_where_a_row_stops() -> None:
    clock = VirtualClock()
    executor = fake(clock, length=3)
    executor.submit(admit(1, 7))
    executor.submit(StepPlan(2, decodes=(7,), repeat=9))
    got = [executor.collect(None)[0] for _ in range(3)]
    assert [p.iteration for p in got] == [0, 0, 1]
    assert [p.done for p in got] == [True, False, True]
    assert [(s.rid, s.output_tokens) for s in got[-1].stops] == [(7, 3)]


@pytest.mark.parametrize(
    ("at", "iterations", "end"), [(0.7, 1, 1.0), (1.0, 1, 1.0), (1.1, 2, 1.5), (1.5, 2, 1.5)]
)
def test_interrupt_ends_at_the_first_boundary_from_then_on(at: float, iterations: int, end: float) -> None:
    clock = VirtualClock()
    executor = fake(clock)
    executor.submit(admit(1, 7))
    executor.collect(None)
    executor.submit(StepPlan(2, decodes=(7,), repeat=9))
    done = []
    while clock.now() < at:
        done += executor.collect(at)
    executor.interrupt()
    while not done or not done[-1].done:
        done += executor.collect(None)
    assert sum(p.iteration is not None for p in done) == iterations
    assert done[-1].at == end


def test_an_interrupt_leaves_later_plans_alone() -> None:
    executor = fake(VirtualClock())
    executor.interrupt()
    executor.submit(admit(1, 7))
    executor.collect(None)
    executor.submit(StepPlan(2, decodes=(7,), repeat=3))
    got = [executor.collect(None)[0] for _ in range(3)]
    assert [p.done for p in got] == [False, False, True]


def test_wake_ends_a_wait_on_a_real_clock() -> None:
    executor = fake(MonotonicClock(), seconds=0.001)
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(executor.collect(None)))
    thread.start()
    executor.wake()
    thread.join(10)
    assert got == [[]]
    executor.submit(admit(1, 7))
    assert executor.collect(None)[0].done
    executor.close()
    assert executor.collect(None) == []
