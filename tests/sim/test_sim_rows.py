"""The executor of the simulation, plan by plan."""

from __future__ import annotations

from belady.core.facts import Stop
from belady.core.paritylog import Output
from belady.core.plan import Admit, Prefill, StepPlan
from belady.core.request import Request
from belady.sim.rows import Rows


def admit(rid: int, generated: int = 0) -> Admit:
    return Admit(Request(rid=rid, prompt=b"", prompt_tokens=1, max_tokens=99), 0, ((0,),), generated)


def play(rows: Rows, plan: StepPlan) -> tuple[list[int] | None, tuple[Stop, ...], int]:
    rows.begin(plan)
    iterations = rows.iterations(plan)
    tokens, stops = rows.finish(plan, iterations)
    return None if tokens is None else tokens.tolist(), stops, iterations


def start(step: int, *rids: int, generated: int = 0, drops: tuple[int, ...] = ()) -> StepPlan:
    return StepPlan(
        step,
        admits=tuple(admit(rid, generated) for rid in rids),
        prefills=tuple(Prefill(rid, 0, 1, True) for rid in rids),
        drops=drops,
    )


def test_a_run_of_decodes_ends_with_its_first_stop() -> None:
    rows = Rows({1: Output(length=4), 2: Output(length=9), 3: Output(length=1)})
    assert play(rows, start(1, 1, 2, 3)) == (None, (Stop(3, 1, "stop"),), 1)
    assert play(rows, StepPlan(2, decodes=(1, 2), repeat=64)) == (None, (Stop(1, 4, "stop"),), 3)
    assert play(rows, StepPlan(3, decodes=(2,), drops=(1,), repeat=2)) == (None, (), 2)
    assert play(rows, StepPlan(4, decodes=(2,), repeat=64)) == (None, (Stop(2, 9, "stop"),), 3)


def test_stops_and_tokens_come_in_row_order() -> None:
    outputs = {rid: Output(length=3, tokens=(10 * rid, 10 * rid + 1, 10 * rid + 2)) for rid in (1, 2, 3)}
    rows = Rows(outputs)
    assert play(rows, start(1, 3, 1))[0] == [30, 10]
    assert play(rows, StepPlan(2, decodes=(3, 1), repeat=64)) == (
        [31, 11, 32, 12],
        (Stop(3, 3, "stop"), Stop(1, 3, "stop")),
        2,
    )


def test_a_preempted_row_goes_on_where_it_was_and_its_former_stop_is_forgotten() -> None:
    rows = Rows({1: Output(length=5, tokens=(1, 2, 3, 4, 5)), 2: Output(length=50, tokens=(9,))})
    play(rows, start(1, 1, 2))
    play(rows, StepPlan(2, decodes=(1, 2)))
    # Preempted after two tokens; its new self is due in the very iteration in which the former one was.
    again = StepPlan(3, admits=(admit(1, 2),), prefills=(Prefill(1, 0, 3, True),), decodes=(2,), drops=(1,))
    assert play(rows, again)[0] == [3, 9]
    assert play(rows, StepPlan(4, decodes=(2, 1), repeat=64)) == ([9, 4, 9, 5], (Stop(1, 5, "stop"),), 2)


def test_a_row_without_a_length_never_stops() -> None:
    rows = Rows({1: Output(length=None)})
    play(rows, start(1, 1))
    assert play(rows, StepPlan(2, decodes=(1,), repeat=64)) == (None, (), 64)
