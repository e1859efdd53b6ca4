"""The scheduler against a page-exact executor: whatever happens, every read finds the right KV."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import Harness, request

from belady.core.config import CoreConfig, GroupConfig
from belady.core.events import (
    Finished,
    FinishReason,
    FirstToken,
    HintOutcome,
    Loss,
    Preempted,
    Refused,
    Scheduled,
)
from belady.core.facts import Aborted, Hint, ProgramClosed
from belady.core.intents import Intent, Verb
from belady.core.view import SchedulerView


def config(pages: int = 64, window: int | None = None, window_pages: int = 24, **more: object) -> CoreConfig:
    groups = [GroupConfig(name="full", pages=pages)]
    if window is not None:
        groups.append(GroupConfig(name="window", pages=window_pages, window=window))
    defaults: dict[str, object] = {"page_size": 4, "max_running": 4, "step_tokens": 16, "max_context": 120}
    return CoreConfig(groups=tuple(groups), **{**defaults, **more})  # type: ignore[arg-type]


def test_one_request_runs_to_its_limit() -> None:
    h = Harness(config())
    h.submit(request(1, list(range(10)), max_tokens=5))
    h.run()
    end = h.ends()[1]
    assert isinstance(end, Finished)
    assert (end.reason, end.output_tokens, end.cached_tokens) == (FinishReason.LENGTH, 5, 0)
    assert sum(isinstance(e, FirstToken) for e in h.events) == 1


def test_second_turn_reuses_all_but_what_has_no_kv() -> None:
    h = Harness(config())
    h.submit(request(1, list(range(10)), max_tokens=5))
    h.run()
    turn = h.machine.sequences[1] + [7, 7]
    h.submit(request(2, turn, max_tokens=3))
    h.run()
    scheduled = [e for e in h.events if isinstance(e, Scheduled)][-1]
    # 10 prompt tokens and 4 of 5 output tokens have KV; the boundary falls inside a page, which is copied.
    assert scheduled.usable == 14
    assert any(plan.copies for plan in h.plans)


def test_repeated_prompt_replays_one_token() -> None:
    h = Harness(config())
    for rid in (1, 2):
        h.submit(request(rid, list(range(12)), max_tokens=1))
        h.run()
    scheduled = [e for e in h.events if isinstance(e, Scheduled)][-1]
    assert (scheduled.matched, scheduled.usable, scheduled.losses) == (12, 11, ((Loss.LAST_TOKEN, 1),))


def test_copies_of_one_step_keep_to_their_bytes() -> None:
    groups = (GroupConfig(name="full", pages=64, bytes_per_token=100),)
    starts = {}
    for step_bytes in (None, 250):
        limits = CoreConfig(groups=groups, page_size=4, max_running=8, step_tokens=64, step_bytes=step_bytes)
        h = Harness(limits, depth=1)
        h.submit(request(1, list(range(10)), max_tokens=1))
        h.run()
        h.submit(request(2, [50, 51], max_tokens=1))  # the others arrive while this one runs
        for rid in (3, 4, 5):  # each copies the two filled slots of the third page: 200 bytes
            h.submit(request(rid, [*range(10), rid], max_tokens=1))
        h.run()
        starts[step_bytes] = [len(plan.copies) for plan in h.plans if plan.copies]
    assert starts == {None: [3], 250: [2, 1]}


def test_namespaces_never_share() -> None:
    h = Harness(config())
    h.submit(request(1, list(range(12)), namespace="a"))
    h.run()
    h.submit(request(2, list(range(12)), namespace="b"))
    h.run()
    assert [e.matched for e in h.events if isinstance(e, Scheduled)] == [0, 0]


def test_steady_decode_is_one_plan_for_many_iterations() -> None:
    h = Harness(config(max_repeat=32))
    h.submit(request(1, list(range(8)), max_tokens=60))
    h.run()
    assert h.ends()[1].output_tokens == 60
    assert max(plan.repeat for plan in h.plans) == 32
    assert len(h.plans) < 10


def test_arrival_cuts_a_repeated_plan_short() -> None:
    h = Harness(config(max_repeat=32))
    h.submit(request(1, list(range(8)), max_tokens=60))
    h.advance()
    h.advance()
    assert h.flying[0].repeat > 1
    h.submit(request(2, [5, 6, 7], max_tokens=3))
    assert h.pipeline.interrupt
    h.advance()
    assert h.flying and any(p.rid == 2 for p in h.flying[0].prefills)
    h.run()
    assert {rid: e.output_tokens for rid, e in h.ends().items()} == {1: 60, 2: 3}


def test_simultaneous_equal_prompts_are_computed_once() -> None:
    h = Harness(config(step_tokens=64))
    prompt = list(range(40))
    h.submit(*(request(rid, prompt, max_tokens=2) for rid in range(1, 4)))
    h.run()
    # The first computes 40 tokens, the others replay the last one; every request decodes one more.
    assert h.machine.computed_tokens == 40 + 1 + 1 + 3


def test_preemption_keeps_output_and_loses_nothing() -> None:
    h = Harness(config(pages=14))
    alone = {}
    for rid in (1, 2, 3):
        single = Harness(config(pages=64))
        single.submit(request(rid, [rid] * 12, max_tokens=24))
        single.run()
        alone[rid] = single.machine.sequences[rid]
    h.submit(*(request(rid, [rid] * 12, max_tokens=24) for rid in (1, 2, 3)))
    h.run()
    assert any(isinstance(e, Preempted) for e in h.events)
    assert {rid: h.machine.sequences[rid][:36] for rid in (1, 2, 3)} == {r: s[:36] for r, s in alone.items()}
    assert all(e.output_tokens == 24 for e in h.ends().values())


def test_oversubscribed_requests_do_not_evict_each_other_for_ever() -> None:
    h = Harness(config(pages=30, max_running=32, step_tokens=64))
    h.submit(*(request(rid, [rid] * 12, max_tokens=40) for rid in range(1, 41)))
    h.run()
    assert all(end.output_tokens == 40 for end in h.ends().values())
    preemptions = sum(isinstance(e, Preempted) for e in h.events)
    assert 0 < preemptions < 40
    assert h.machine.computed_tokens < 1.4 * 40 * 51


def test_higher_priority_takes_room_from_lower() -> None:
    h = Harness(config(max_running=1, step_tokens=16))
    h.submit(request(1, list(range(8)), max_tokens=50))
    h.advance()
    h.submit(request(2, list(range(50, 58)), max_tokens=2, priority=5))
    h.run()
    order = [e.rid for e in h.events if isinstance(e, Finished)]
    assert order == [2, 1]
    assert h.ends()[1].output_tokens == 50


def test_too_long_is_refused_with_the_true_numbers() -> None:
    h = Harness(config())
    h.submit(request(1, list(range(120)), max_tokens=1))
    end = h.ends()[1]
    assert isinstance(end, Refused)
    assert "120" in end.detail


def test_late_stop_discards_what_came_behind() -> None:
    h = Harness(config(), stop=lambda rid, count: count == 3)
    h.submit(request(1, list(range(8)), max_tokens=40), request(2, list(range(60, 100)), max_tokens=40))
    h.run()
    assert {rid: (e.reason, e.output_tokens) for rid, e in h.ends().items()} == {
        1: (FinishReason.STOP, 3),
        2: (FinishReason.STOP, 3),
    }


def test_kv_of_a_failed_step_is_never_cached() -> None:
    h = Harness(config(step_tokens=8))
    prompt = list(range(40))
    h.submit(request(1, prompt))
    h.advance()
    assert len(h.flying) == 2  # the second and third chunk
    h.feed(Aborted(h.now, 1))  # the client leaves, and then the step fails
    h.advance(fail=True)
    h.run()
    h.submit(request(2, prompt))
    h.run()
    assert [e.usable for e in h.events if isinstance(e, Scheduled)] == [0, 8]


def test_closed_program_and_hints_are_answered() -> None:
    h = Harness(config())
    h.submit(request(1, list(range(8)), program="p"))
    h.run()
    h.feed(ProgramClosed(h.now, "p"))
    h.feed(Hint(h.now, "a1", "retain", "1", {}))
    assert [e.outcome.value for e in h.events if type(e).__name__ == "HintOutcome"] == ["rejected"]
    assert all(span.next_use == float("inf") for span in h.scheduler.cache.tree)


class Adviser:
    """Proposes what the test says, once."""

    def __init__(self) -> None:
        self.next: list[Intent] = []

    def propose(self, view: SchedulerView, now: float) -> list[Intent]:
        out, self.next = self.next, []
        return out


def test_intents_are_carried_out_or_answered() -> None:
    adviser = Adviser()
    h = Harness(config(max_running=1), advise=adviser)
    h.submit(request(1, list(range(8)), max_tokens=9), request(2, [7, 7], max_tokens=2), request(3, [9, 9]))
    adviser.next = [
        Intent(intent_id="a", verb=Verb.PREEMPT, rid=1),
        Intent(intent_id="b", verb=Verb.REJECT, rid=2, reason="too busy"),
        Intent(intent_id="c", verb=Verb.REJECT, rid=77),
        Intent(intent_id="d", verb=Verb.PREEMPT, rid=3),
        Intent(intent_id="e", verb=Verb.SCALE),
        Intent(intent_id="f", verb=Verb.RELEASE, program="nobody"),
        Intent(intent_id="g", verb=Verb.RELEASE),
    ]
    h.run()
    answers = {e.action_id: e.outcome.value for e in h.events if isinstance(e, HintOutcome)}
    assert answers == {
        "a": "accepted",
        "b": "accepted",
        "c": "missing",
        "d": "rejected",
        "e": "rejected",
        "f": "missing",
        "g": "rejected",
    }
    ends = h.ends()
    assert isinstance(ends[2], Refused) and ends[2].detail == "too busy"
    assert isinstance(ends[1], Finished) and (ends[1].output_tokens, ends[1].preemptions) == (9, 1)


def test_window_hit_needs_the_window() -> None:
    h = Harness(config(window=8))
    system = list(range(100, 140))
    for rid in (1, 2, 3):
        h.submit(request(rid, [*system, *[rid] * 12], max_tokens=2))
        h.run()
    scheduled = [e for e in h.events if isinstance(e, Scheduled)]
    assert scheduled[1].matched == 40
    assert scheduled[1].usable == 0
    assert dict(scheduled[1].losses)[Loss.WINDOW] == 40
    # The second request left the window at the branch behind, so the third one hits.
    assert scheduled[2].usable == 40


@st.composite
def workloads(draw: st.DrawFn) -> tuple[CoreConfig, int, int]:
    window = draw(st.sampled_from([None, 5, 8]))
    page = draw(st.sampled_from([1, 4]))
    pages = draw(st.integers(12, 40)) * (4 // page)
    cfg = config(
        pages=pages,
        window=window,
        window_pages=draw(st.integers(6, 24)) * (4 // page),
        page_size=page,
        step_tokens=draw(st.sampled_from([5, 16, 64])),
        max_repeat=draw(st.sampled_from([1, 8])),
    )
    return cfg, draw(st.sampled_from([1, 2, 3])), draw(st.integers(0, 2**32))


def run_workload(case: tuple[CoreConfig, int, int]) -> None:
    """Random requests, aborts and late facts; the slot machine checks every read, the harness every page."""
    cfg, depth, seed = case
    rng = random.Random(seed)
    lengths = {rid: rng.randint(1, 30) for rid in range(1, 30)}
    h = Harness(
        cfg, depth=depth, evict=rng.choice(["lru", "clairvoyant"]), stop=lambda rid, n: n == lengths[rid]
    )
    shared = [rng.randrange(50) for _ in range(40)]
    sent: list[int] = []
    for rid in range(1, 16):
        base = shared[: rng.randint(0, 40)]
        if sent and rng.random() < 0.5:
            base = h.machine.sequences.get(rng.choice(sent), base)[:60]
        prompt = (base + [rng.randrange(50) for _ in range(rng.randint(1, 20))])[:70]
        h.submit(request(rid, prompt, max_tokens=rng.randint(1, 40), priority=rng.choice([0, 0, 0, 3])))
        sent.append(rid)
        for _ in range(rng.randint(0, 6)):
            h.advance(rng.choice([None, 1, 3]), fail=rng.random() < 0.03)
        if rng.random() < 0.2:
            h.feed(Aborted(h.now, rng.choice(sent)))
    h.run()
    ends = h.ends()
    assert set(ends) == set(sent)
    assert h.scheduler.running == h.scheduler.waiting == 0
    for rid, end in ends.items():
        if isinstance(end, Finished) and end.reason is FinishReason.STOP:
            assert end.output_tokens == lengths[rid]


@settings(max_examples=100, deadline=None)
@given(workloads())
def test_any_workload_reads_right_kv_and_conserves_pages(case: tuple[CoreConfig, int, int]) -> None:
    run_workload(case)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=5000, deadline=None)
@given(workloads())
def test_very_many_workloads(case: tuple[CoreConfig, int, int]) -> None:
    run_workload(case)


@pytest.mark.parametrize("depth", [1, 2])
def test_same_facts_same_plans(depth: int) -> None:
    runs = []
    for _ in range(2):
        h = Harness(config(pages=20), depth=depth)
        h.submit(*(request(rid, [rid % 3] * 10, max_tokens=9) for rid in range(1, 8)))
        h.run()
        runs.append((h.plans, h.events))
    assert runs[0] == runs[1]
