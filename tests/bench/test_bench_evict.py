"""Overlaying conversations, the peak working set, and the comparison of policies."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.bench.evict import Params, Workload, compare, infinite_hits, overlay, peak_working_set
from belady.bench.replay import Access, replay
from belady.formats import WekaCall, WekaConversation, WekaSubagent


def access(name: str, *keys: int) -> Access:
    return Access(name, array("i", keys).tobytes())


def call(t: float, blocks: int, first: int = 0) -> WekaCall:
    ranges = ((first, first + blocks - 1),) if blocks else ()
    return WekaCall(
        t=t, model="m", input_tokens=64 * blocks + 5, output_tokens=1, hash_id_ranges=ranges, api_time=1.0
    )


def conversation(name: str, *items: WekaCall | WekaSubagent) -> WekaConversation:
    return WekaConversation(id=name, block_size=64, requests=items)


growing = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 1), min_size=1, max_size=5)),
    min_size=1,
    max_size=25,
).map(lambda rows: [access(name, *keys) for name, keys in rows])


@given(growing)
def test_peak_working_set_is_what_clairvoyant_needs_to_lose_nothing(calls: list[Access]) -> None:
    peak = peak_working_set(calls)
    ideal = infinite_hits(calls)
    if peak >= 2:
        assert replay(calls, peak, "clairvoyant") == ideal
    if peak > 2:
        assert sum(replay(calls, peak - 1, "clairvoyant")) < sum(ideal)


@given(growing)
def test_infinite_hits_are_the_longest_earlier_prefix(calls: list[Access]) -> None:
    expected = []
    for number, now in enumerate(calls):
        mine = memoryview(now.keys).cast("i").tolist()
        best = 0
        for earlier in calls[:number]:
            if earlier.namespace == now.namespace:
                theirs = memoryview(earlier.keys).cast("i").tolist()
                shared = 0
                while shared < min(len(mine), len(theirs)) and mine[shared] == theirs[shared]:
                    shared += 1
                best = max(best, shared)
        expected.append(best)
    assert infinite_hits(calls) == expected


def test_overlay_keeps_recorded_gaps_and_plays_lanes_in_turn() -> None:
    talks = [conversation(name, call(0, 1), call(10, 2)) for name in ("a", "b", "c")]
    params = Params(lanes=1, stagger_seconds=0.0)
    load = overlay(talks, params, seed=3)
    assert load.key_tokens == 64
    assert load.prompt_tokens == [69, 133] * 3
    names = [a.namespace for a in load.accesses]
    assert names[0::2] == names[1::2] and sorted(names[0::2]) == ["a", "b", "c"], (
        "one lane plays one at a time"
    )
    assert overlay(talks, params, seed=3) == load


def test_overlay_mixes_lanes_and_places_subagents_in_time() -> None:
    agent = WekaSubagent(
        t=4, agent_id="x", subagent_type="Explore", status="completed", requests=(call(0, 1, 50),)
    )
    talks = [conversation("a", call(0, 1), agent, call(10, 2)), conversation("b", call(1, 1))]
    load = overlay(talks, Params(lanes=2, stagger_seconds=0.0), seed=0)
    assert [a.namespace for a in load.accesses] == ["a", "b", "a", "a"]
    assert memoryview(load.accesses[2].keys).cast("i").tolist() == [50]


def test_comparison_counts_tokens_and_what_was_avoidable() -> None:
    load = Workload([access("a", 0, 1), access("a", 0, 1)], [130, 130], 64)
    found = {"lru": [[0, 1]], "clairvoyant": [[0, 2]]}
    rows = {r.metric: r for r in compare([load], [[0, 2]], found, "0.5x")}
    assert (rows["hit_tokens_0.5x"].ours, rows["hit_tokens_0.5x"].baseline) == (128, 64)
    assert rows["hit_share_0.5x"].bound == pytest.approx(100 * 128 / 260)
    assert (rows["avoidable_p99_0.5x"].ours, rows["avoidable_p99_0.5x"].baseline) == (0, 64)
    assert rows["avoidable_share_0.5x"].baseline == pytest.approx(100 * 64 / 196)


def test_quick_runs_less_than_the_full_one() -> None:
    from belady.bench.evict import params

    quick, full = params(True), params(False)
    assert len(quick.seeds) < len(full.seeds) and full.conversations is None and quick.conversations
    assert all(a < b for a, b in pairwise(full.capacities))
