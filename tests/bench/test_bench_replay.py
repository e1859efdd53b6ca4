"""The replay harness and the two oracles: block LRU, and the best that any policy could hold."""

from __future__ import annotations

from array import array
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.bench.prefix import block_lru, measure
from belady.bench.replay import Access, replay


def paths(ids: list[list[int]]) -> list[list[int]]:
    """Block ids that name a whole prefix, as in a trace: equal id, equal prefix up to it."""
    names: dict[tuple[int, ...], int] = {}
    return [
        [names.setdefault(tuple(row[: i + 1]), len(names)) for i in range(len(row))] for row in ids if row
    ]


def accesses(prompts: list[list[int]]) -> list[Access]:
    return [Access("", array("i", prompt).tobytes()) for prompt in prompts]


def leading(prompt: list[int], held: frozenset[int]) -> int:
    return next((i for i, block in enumerate(prompt) if block not in held), len(prompt))


def best_hits(prompts: list[list[int]], capacity: int) -> int:
    """Most hits of any policy: after each prompt any `capacity` of resident and new blocks may stay."""
    states = {frozenset[int](): 0}
    for prompt in prompts:
        after: dict[frozenset[int], int] = {}
        for held, hits in states.items():
            found = hits + leading(prompt, held)
            choice = sorted(held | set(prompt))
            for kept in combinations(choice, min(capacity, len(choice))):
                key = frozenset(kept)
                after[key] = max(after.get(key, 0), found)
        states = after
    return max(states.values())


prompts_of = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=25).map(paths)
few_prompts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=1, max_size=8).map(paths)


@given(prompts_of, st.integers(2, 12))
def test_tree_lru_is_block_lru(prompts: list[list[int]], capacity: int) -> None:
    assert replay(accesses(prompts), capacity, "lru") == block_lru(prompts, capacity)


@settings(deadline=None)
@given(few_prompts, st.integers(2, 4))
def test_clairvoyant_is_the_best_of_all_policies(prompts: list[list[int]], capacity: int) -> None:
    assert sum(replay(accesses(prompts), capacity, "clairvoyant")) == best_hits(prompts, capacity)


@given(prompts_of, st.integers(2, 12))
def test_clairvoyant_is_never_below_lru(prompts: list[list[int]], capacity: int) -> None:
    calls = accesses(prompts)
    assert sum(replay(calls, capacity, "clairvoyant")) >= sum(replay(calls, capacity, "lru"))


def test_clairvoyant_beats_lru_where_lru_fails() -> None:
    prompts = [[1], [2], [3]] * 4
    assert sum(replay(accesses(prompts), 2, "lru")) == 0
    assert sum(replay(accesses(prompts), 2, "clairvoyant")) == best_hits(prompts, 2) > 0


def test_namespaces_share_nothing() -> None:
    keys = array("i", [1, 2]).tobytes()
    assert replay([Access("a", keys), Access("b", keys), Access("a", keys)], 8, "lru") == [0, 0, 2]


def test_a_prompt_longer_than_the_room_keeps_its_head() -> None:
    prompts = [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert block_lru(prompts, 2) == [0, 2]
    assert replay(accesses(prompts), 2, "lru") == [0, 2]


def test_prefix_results_say_equal_and_by_how_much_the_future_helps() -> None:
    prompts = [[1], [2], [3]] * 4
    rate, gap = measure(prompts, 2, None, clairvoyant=True)
    assert rate.metric == "block_hit_2" and rate.met and rate.exact
    assert rate.ours == rate.baseline == rate.goal == 0.0
    assert rate.bound is not None and rate.bound == gap.ours > 0


def test_prefix_misses_a_published_rate_that_differs() -> None:
    (rate,) = measure([[1], [1]], 0, 49.0, clairvoyant=True)
    assert rate.metric == "block_hit_infinite"
    assert rate.ours == pytest.approx(50.0) and rate.goal == 49.0 and rate.met is False
