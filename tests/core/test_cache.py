"""The cache against a brute-force model: a set of cached prefixes at page grain."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from belady.core.cache import KvCache
from belady.core.config import CoreConfig, GroupConfig
from belady.core.forecast import NEVER, Reuse
from belady.core.prefix_tree import common_bytes
from belady.policy.registry import load


def make(pages: int, page: int = 1, policy: str = "lru") -> KvCache:
    config = CoreConfig(groups=(GroupConfig(name="full", pages=pages),), page_size=page, max_context=1000)
    return KvCache(config, load("evict", policy))


def store(cache: KvCache, keys: list[int], now: float, reuse: tuple[Reuse, ...] = ()) -> int:
    """One request that runs in no time: match, take, insert, let go. Returns matched keys."""
    p = cache.page_keys
    data = array("i", keys).tobytes()
    match = cache.match("", data, "owner", now)
    shared = match.keys // p
    fresh = cache.take(0, -(-len(keys) // p) - shared, now)
    assert fresh is not None
    table = cache.table(match.span, shared * p, 0) + fresh
    span, new_from = cache.insert(match.span, data, [table], "owner", now, "")
    kept = -(-len(keys) // p) - new_from // p if new_from < len(keys) else 0
    cache.pools[0].release(fresh[: len(fresh) - kept])
    if reuse:
        cache.annotate(span, reuse, now)
    cache.unpin(match.span, now)
    return match.keys


sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(sequences, st.sampled_from([1, 3]))
def test_match_is_the_longest_stored_prefix(prompts: list[list[int]], page: int) -> None:
    cache = make(2000, page)
    seen: list[list[int]] = []
    for now, prompt in enumerate(prompts):
        want = max((_common(prompt, other) for other in seen), default=0)
        assert cache.probe("", array("i", prompt).tobytes()) == want
        assert store(cache, prompt, float(now)) == want
        seen.append(prompt)
        cache.check_integrity([[]])


@settings(max_examples=200, deadline=None)
@given(sequences, st.integers(12, 30))
def test_lru_keeps_exactly_the_most_recent_pages(prompts: list[list[int]], capacity: int) -> None:
    """Block LRU, tail touched first, is what the tree's leaf-tail eviction must equal."""
    cache = make(capacity)
    recent: list[tuple[int, ...]] = []
    for now, prompt in enumerate(prompts):
        blocks = [tuple(prompt[: i + 1]) for i in range(len(prompt))]
        hit = next((i for i, b in enumerate(blocks) if b not in recent), len(blocks))
        assert store(cache, prompt, float(now)) == hit
        for block in reversed(blocks):
            if block in recent:
                recent.remove(block)
            recent.append(block)
        recent = recent[-capacity:]
        assert cache.cached_pages == len(recent)
        cache.check_integrity([[]])


def test_reuse_cuts_runs_where_the_forecast_changes() -> None:
    cache = make(20, policy="clairvoyant")
    store(cache, [1, 2, 3, 4], 0.0, (Reuse(2, 10.0), Reuse(4, NEVER)))
    assert sorted((s.start, s.end, s.next_use) for s in cache.tree) == [(0, 2, 10.0), (2, 4, NEVER)]
    assert cache.take(0, 18, 1.0) is not None
    assert [(s.start, s.end) for s in cache.tree] == [(0, 2)]


def test_evicted_prefix_leaves_a_ghost_that_grows() -> None:
    cache = make(8)
    store(cache, [1, 2, 3, 4, 5, 6], 0.0)
    store(cache, [9, 9, 9, 9], 1.0)
    store(cache, [9, 9, 9, 9, 9], 2.0)
    match = cache.match("", array("i", [1, 2, 3, 4, 5, 6]).tobytes(), None, 3.0)
    assert (match.keys, match.ghost_keys) == (3, 3)


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_common_bytes_counts_whole_keys(a: bytes, b: bytes) -> None:
    a, b = a[: len(a) // 4 * 4], b[: len(b) // 4 * 4]
    want = 0
    while want < min(len(a), len(b)) and a[want : want + 4] == b[want : want + 4]:
        want += 4
    assert common_bytes(a, 0, b) == want


def test_common_bytes_beyond_one_chunk() -> None:
    a = bytes(20_000)
    assert common_bytes(a, 0, a[:16_000] + b"\1\0\0\0" + a[16_004:]) == 16_000
    assert common_bytes(a, 0, a) == 20_000


def _common(a: list[int], b: list[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n
