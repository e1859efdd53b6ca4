"""`core`: what the decision core itself costs: a step, a match and an insert, an eviction, a node of the tree.

All over one tree of about 100,000 runs that share prefixes, so that nothing is measured on an empty core. Token ids are
random; sizes of runs are those of short agent turns.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from belady.bench.experiment import Note
from belady.bench.timing import calmest
from belady.core.cache import KvCache
from belady.core.config import CoreConfig, GroupConfig
from belady.core.facts import Arrived, Fact, StepResult
from belady.core.pipeline import Pipeline
from belady.core.prefix_tree import KEY_BYTES
from belady.core.request import Request
from belady.core.scheduler import Scheduler
from belady.policy.registry import load
from belady.report.bench_json import Result, compared
from belady.report.quantile import nearest_rank

CLAIM = "the decision core is cheap enough to plan every step of a full batch over a large tree"
VOCABULARY = 50_000
PAGE = 16
STEP_GOAL = 60.0
MATCH_INSERT_GOAL = 15.0
NODE_GOAL = 400.0
TOKEN_GOAL = 8.0
LATER = 1e9
"""A time after all uses of the tree, so that its own small runs are the first to be evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Rounds are repeats, of which the one of the lowest median counts. `long_tokens`: length of the runs behind the
    per-token memory; `memory_nodes`: runs of each tree whose memory is traced."""

    nodes: int = 100_000
    decodes: int = 64
    steps: int = 2_000
    rounds: int = 7
    prompts: int = 24
    prompt_tokens: int = 8_192
    memory_nodes: int = 20_000
    long_tokens: int = 256
    evict_pages: int = 20_000
    seed: int = 0


def params(quick: bool) -> Params:
    return Params(steps=1_000, rounds=3, memory_nodes=5_000) if quick else Params()


def run(params: Params, note: Note) -> list[Result]:
    rng = random.Random(params.seed)
    scheduler = core(params)
    cache = scheduler.cache
    grow(cache, params.nodes, rng, shared=(8, 32), tail=(PAGE, PAGE))
    return [
        *step_results(scheduler, params, rng),
        *store_results(cache, params, rng),
        *evict_results(cache, params),
        *memory_results(params),
    ]


def core(params: Params) -> Scheduler:
    """A core with room for the tree, the running requests and the stored prompts."""
    prompts = params.rounds * params.prompts * -(-params.prompt_tokens // PAGE)
    decodes = params.decodes * (64 + params.rounds * params.steps // PAGE)
    pages = 4 * params.nodes + prompts + decodes + params.evict_pages
    config = CoreConfig(
        groups=(GroupConfig(name="full", pages=pages),),
        page_size=PAGE,
        max_running=params.decodes,
        step_tokens=max(2048, 2 * params.decodes),
        max_context=1_000_000,
        max_repeat=1,
    )
    return Scheduler(config, evict=load("evict", "lru"))


def grow(
    cache: KvCache, nodes: int, rng: random.Random, *, shared: tuple[int, int], tail: tuple[int, int]
) -> None:
    """Store prompts until the tree has at least `nodes` runs: a cut of one of some base prompts, then tokens of its own."""
    bases = [_tokens(rng, max(shared)) for _ in range(300)]
    number = 0
    while cache.tree.spans < nodes:
        number += 1
        base = bases[rng.randrange(len(bases))]
        keys = base[: KEY_BYTES * rng.randint(*shared)] + _tokens(rng, rng.randint(*tail))
        _store(cache, "", keys, float(number))
        cache.events.clear()


def _tokens(rng: random.Random, count: int) -> bytes:
    return array("i", [rng.randrange(VOCABULARY) for _ in range(count)]).tobytes()


def _store(cache: KvCache, namespace: str, keys: bytes, now: float) -> None:
    """Match, take the pages that are missing, insert."""
    match = cache.match(namespace, keys, None, now)
    have = match.keys // PAGE
    pages = cache.take(0, -(-len(keys) // KEY_BYTES // PAGE) - have, now)
    assert pages is not None, "the pool is too small for this experiment"
    _, new_from = cache.insert(match.span, keys, [[0] * have + pages], None, now, namespace)
    if new_from * KEY_BYTES == len(keys):
        cache.pools[0].release(pages)
    cache.unpin(match.span, now)


# -- a step -----------------------------------------------------------------------------------------------------------


def step_results(scheduler: Scheduler, params: Params, rng: random.Random) -> list[Result]:
    pipeline = Pipeline(scheduler, depth=1)
    _start(pipeline, scheduler, params, rng)
    gc.collect()
    rounds = [_steps(pipeline, params) for _ in range(params.rounds)]
    assert scheduler.running == params.decodes
    best = calmest([took for took, _ in rounds])
    return [
        compared(
            "step_p50",
            f"median time to plan a step of {params.decodes} decodes over {scheduler.cache.tree.spans:,} runs",
            "us",
            1e6 * nearest_rank(best, 0.5),
            better="lower",
            goal=STEP_GOAL,
        ),
        compared(
            "step_p99",
            "99th percentile of the same round",
            "us",
            1e6 * nearest_rank(best, 0.99),
            better="lower",
        ),
        compared(
            "step_cpu_mean",
            "processor time per step, steps that take pages and the feeding of results included",
            "us",
            1e6 * min(cpu for _, cpu in rounds) / params.steps,
            better="lower",
        ),
    ]


def _start(pipeline: Pipeline, scheduler: Scheduler, params: Params, rng: random.Random) -> None:
    """Bring all requests to their decoding phase."""
    for rid in range(params.decodes):
        request = Request(rid=rid, prompt=_tokens(rng, 200), prompt_tokens=200, max_tokens=900_000)
        pipeline.feed(Arrived(0.0, request))
    plan = pipeline.poll(0.0)
    while plan is not None and len(plan.decodes) < params.decodes:
        pipeline.feed(_result(plan.step, len(plan.sampled)))
        plan = pipeline.poll(0.0)
    assert plan is not None
    pipeline.feed(_result(plan.step, len(plan.sampled)))


def _steps(pipeline: Pipeline, params: Params) -> tuple[list[float], float]:
    """Wall seconds of each step (the last result is applied, the next plan made), and processor seconds of all."""
    took = []
    cpu = time.process_time()
    clock = time.perf_counter
    for number in range(params.steps):
        begin = clock()
        plan = pipeline.poll(float(number))
        end = clock()
        assert plan is not None and len(plan.decodes) == params.decodes
        took.append(end - begin)
        pipeline.feed(_result(plan.step, len(plan.sampled)))
    return took, time.process_time() - cpu


def _result(step: int, tokens: int) -> Fact:
    return StepResult(0.0, step, 1, array("i", [1]) * tokens, (), 0.01)


# -- match, insert, evict ---------------------------------------------------------------------------------------------


def store_results(cache: KvCache, params: Params, rng: random.Random) -> list[Result]:
    """New prompts are matched (nothing is found) and inserted, then matched in full."""
    rounds = []
    for number in range(params.rounds):
        prompts = [_tokens(rng, params.prompt_tokens) for _ in range(params.prompts)]
        rounds.append([_store_and_find(cache, keys, LATER + number) for keys in prompts])
    best = calmest(rounds)
    return [
        compared(
            "match_insert_per_1k",
            f"time per 1,000 tokens to match, insert and match again a new prompt of {params.prompt_tokens:,} tokens",
            "us",
            1e6 * nearest_rank(best, 0.5) * 1000 / params.prompt_tokens,
            better="lower",
            goal=MATCH_INSERT_GOAL,
        )
    ]


def _store_and_find(cache: KvCache, keys: bytes, now: float) -> float:
    pages = cache.take(0, -(-len(keys) // KEY_BYTES // PAGE), now)
    assert pages is not None
    begin = time.perf_counter()
    match = cache.match("store", keys, None, now)
    cache.insert(match.span, keys, [pages], None, now, "store")
    cache.unpin(match.span, now)
    again = cache.match("store", keys, None, now)
    took = time.perf_counter() - begin
    assert not match.keys and again.keys * KEY_BYTES == len(keys)
    cache.unpin(again.span, now)
    cache.events.clear()
    return took


def evict_results(cache: KvCache, params: Params) -> list[Result]:
    """Take more pages than are free, so that every one of them must be evicted; the fastest round counts."""
    pool = cache.pools[0]
    held = cache.take(0, pool.free, LATER)
    assert held is not None
    rounds = [_evict(cache, params.evict_pages // params.rounds, held) for _ in range(params.rounds)]
    pool.release(held)
    took, pages, runs = min(rounds, key=lambda one: one[0] / one[1])
    return [
        compared("evict_pages_per_s", "pages freed by eviction from small runs", "pages/s", pages / took,
                 better="higher"),
        compared("evict_per_run", "time to evict one run with its pages", "us", 1e6 * took / max(1, runs),
                 better="lower"),
    ]  # fmt: skip


def _evict(cache: KvCache, pages: int, held: list[int]) -> tuple[float, int, int]:
    """Seconds to take `pages` pages from a full pool, their number, and the runs that went. Adds them to `held`."""
    runs = cache.tree.spans
    begin = time.perf_counter()
    taken = cache.take(0, pages, LATER)
    took = time.perf_counter() - begin
    assert taken is not None, "the tree holds too few pages to evict"
    cache.events.clear()
    held.extend(taken)
    return took, pages, runs - cache.tree.spans


# -- memory -----------------------------------------------------------------------------------------------------------


def memory_results(params: Params) -> list[Result]:
    """Bytes a run and a token, from two trees that differ in the length of their runs alone."""
    short = _traced(params, PAGE)
    long = _traced(params, params.long_tokens)
    per_token, per_node = solve(short, long)
    fullest = max(size / (NODE_GOAL * nodes + TOKEN_GOAL * tokens) for size, nodes, tokens in (short, long))
    return [
        compared(
            "memory_of_budget",
            f"bytes of the cache as a share of {NODE_GOAL} a run of the tree plus {TOKEN_GOAL} a token, the fuller of "
            f"two trees (runs of {PAGE} and of {params.long_tokens} tokens)",
            "share",
            fullest,
            better="lower",
            goal=1.0,
        ),
        compared(
            "memory_per_node",
            "of that, for each run, its entry in the eviction order included",
            "B",
            per_node,
            better="lower",
        ),
        compared(
            "memory_per_token",
            "of that, for each token: its key and its share of a page number",
            "B",
            per_token,
            better="lower",
        ),
    ]


def solve(first: tuple[int, int, int], second: tuple[int, int, int]) -> tuple[float, float]:
    """(bytes a token, bytes a node) from two measurements (bytes, nodes, tokens) that both explain exactly."""
    bytes_1, nodes_1, tokens_1 = first
    bytes_2, nodes_2, tokens_2 = second
    determinant = nodes_1 * tokens_2 - nodes_2 * tokens_1
    assert determinant, "the two trees must differ in tokens per node"
    per_token = (nodes_1 * bytes_2 - nodes_2 * bytes_1) / determinant
    return per_token, (bytes_1 - per_token * tokens_1) / nodes_1


def _traced(params: Params, tail: int) -> tuple[int, int, int]:
    """Traced bytes, runs and tokens of a tree whose own runs have `tail` tokens. The pool is made before."""
    pages = params.memory_nodes * (-(-tail // PAGE) + 4)
    config = CoreConfig(groups=(GroupConfig(name="full", pages=pages),), page_size=PAGE)
    cache = KvCache(config, load("evict", "lru"))
    rng = random.Random(params.seed)

    def build() -> None:
        grow(cache, params.memory_nodes, rng, shared=(8, 32), tail=(tail, tail))

    grown = traced(build)
    return grown, cache.tree.spans, sum(span.end - span.start for span in cache.tree)


def traced(build: Callable[[], None]) -> int:
    """Bytes that `build` leaves allocated."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        build()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
