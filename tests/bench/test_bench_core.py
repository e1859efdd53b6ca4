"""The micro-benchmarks of the core measure what they say, on a tiny tree. Nothing here asserts a time."""

from __future__ import annotations

import random

import pytest

from belady.bench import core


def test_runs_and_reports_every_claim() -> None:
    tiny = core.Params(
        nodes=300,
        decodes=4,
        steps=40,
        rounds=2,
        prompts=2,
        prompt_tokens=128,
        memory_nodes=200,
        evict_pages=50,
    )
    results = {r.metric: r for r in core.run(tiny, lambda text: None)}
    assert set(results) == {
        "step_p50",
        "step_p99",
        "step_cpu_mean",
        "match_insert_per_1k",
        "evict_pages_per_s",
        "evict_per_run",
        "memory_of_budget",
        "memory_per_node",
        "memory_per_token",
    }
    assert all(r.ours is not None and r.ours > 0 for r in results.values())
    goals = {m for m, r in results.items() if r.goal is not None}
    assert goals == {"step_p50", "match_insert_per_1k", "memory_of_budget"}


def test_the_tree_shares_prefixes_and_holds_together() -> None:
    cache = core.core(core.Params(nodes=200)).cache
    core.grow(cache, 200, random.Random(1), shared=(8, 32), tail=(16, 40))
    assert cache.tree.spans >= 200
    assert any(span.children for span in cache.tree), "no run was ever shared"
    cache.check_integrity([[]])


def test_two_trees_give_bytes_per_token_and_node() -> None:
    per_token, per_node = core.solve((400 * 10 + 8 * 100, 10, 100), (400 * 20 + 8 * 5000, 20, 5000))
    assert per_token == pytest.approx(8) and per_node == pytest.approx(400)


def test_traced_counts_what_stays() -> None:
    kept = []
    assert core.traced(lambda: kept.append(bytes(100_000))) >= 100_000
    assert core.traced(lambda: None) < 10_000
