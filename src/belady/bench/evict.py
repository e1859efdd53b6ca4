"""`evict`: LRU against clairvoyant eviction on overlaid agent conversations (WEKA traces), by capacity.

Conversations are drawn in an order from a seed and put on N lanes; a lane starts its next conversation when one ends.
Calls come when they were recorded, so service and think times are those of the recording (its clock counts whole
seconds). Nothing is shared between conversations, whose block ids are local. The clairvoyant side is prefix-closed MIN
with bypass (Belady, "A study of replacement algorithms", 1966): no policy finds more blocks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from belady.bench.experiment import BenchError, Note
from belady.bench.replay import Access, replay
from belady.bench.traces import locate
from belady.core.forecast import NEVER, Reuse
from belady.core.prefix_tree import KEY_BYTES
from belady.formats import WekaCall, WekaConversation, expand_blocks, read_weka
from belady.report.bench_json import Result, compared
from belady.report.quantile import floor_rank
from belady.sim.workload.future import next_uses

CLAIM = "what a cache that knows the next use saves over LRU on agent conversations"
BASELINE, CEILING = "lru", "clairvoyant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Capacities are multiples of the peak working set: the most blocks that were used and will be used again at one
    time, which is the room that clairvoyant eviction needs to lose nothing. `conversations` None: all of the trace."""

    conversations: int | None = None
    lanes: int = 32
    stagger_seconds: float = 3600.0
    seeds: tuple[int, ...] = (0, 1, 2)
    capacities: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)


@dataclass(frozen=True, slots=True)
class Workload:
    """Accesses in time order, the true prompt tokens of each, and tokens per key."""

    accesses: Sequence[Access]
    prompt_tokens: Sequence[int]
    key_tokens: int


def params(quick: bool) -> Params:
    if quick:
        return Params(conversations=40, lanes=8, seeds=(0,), capacities=(0.1, 0.2, 0.4, 0.8, 1.0, 1.2))
    return Params()


def run(params: Params, note: Note) -> list[Result]:
    path, _ = locate("weka/traces_dev.jsonl.gz", "weka_excerpt.jsonl.gz", note)
    conversations = list(read_weka(path))
    if not conversations:
        raise BenchError(f"{path} holds no conversation")
    loads = [overlay(conversations, params, seed) for seed in params.seeds]
    infinite = [infinite_hits(load.accesses) for load in loads]
    peaks = [peak_working_set(load.accesses) for load in loads]
    results = [
        compared(
            "peak_working_set",
            "tokens that were used and will be used again at one time, at most (mean over seeds)",
            "tokens",
            sum(peak * load.key_tokens for peak, load in zip(peaks, loads, strict=True)) / len(loads),
            better="lower",
        )
    ]
    for capacity in params.capacities:
        rooms = [max(2, round(capacity * peak)) for peak in peaks]
        found = {
            policy: [replay(load.accesses, room, policy) for load, room in zip(loads, rooms, strict=True)]
            for policy in (BASELINE, CEILING)
        }
        results += compare(loads, infinite, found, f"{capacity:g}x")
    return results


def overlay(conversations: Sequence[WekaConversation], params: Params, seed: int) -> Workload:
    """The calls of conversations drawn by `seed`, on the clock of their recording, lane by lane, in time order."""
    block = conversations[0].block_size
    if any(c.block_size != block for c in conversations):
        raise BenchError("the conversations of the trace have blocks of different sizes")
    rng = random.Random(f"evict {seed}")
    order = list(conversations)
    rng.shuffle(order)
    order = order[: params.conversations]
    free_at = sorted(rng.uniform(0.0, params.stagger_seconds) for _ in range(min(params.lanes, len(order))))
    calls: list[tuple[float, int, Access, int]] = []
    for conversation in order:
        begin = free_at.pop(0)
        end = begin
        for start, stream in _streams(conversation):
            for call in stream:
                access = Access(conversation.id, expand_blocks(call.hash_id_ranges).tobytes())
                calls.append((begin + start + call.t, len(calls), access, call.input_tokens))
                end = max(end, begin + start + call.t + (call.api_time or 0.0))
        free_at.append(end)
        free_at.sort()
    calls.sort(key=lambda call: call[:2])
    return Workload([call[2] for call in calls], [call[3] for call in calls], block)


def _streams(conversation: WekaConversation) -> Iterator[tuple[float, Sequence[WekaCall]]]:
    """Start in seconds and calls of the main program and of each sub-agent."""
    yield 0.0, conversation.main_calls()
    for agent in conversation.subagents():
        yield agent.t, agent.requests


def infinite_hits(accesses: Sequence[Access]) -> list[int]:
    """Keys of each access that a cache without bounds would have found."""
    distinct = sum(len(a.keys) // KEY_BYTES for a in accesses)
    for reuse in next_uses(accesses):
        distinct -= sum(count for count, _ in _reused(reuse))  # every key has one last use
    return replay(accesses, max(2, distinct), BASELINE)


def peak_working_set(accesses: Sequence[Access]) -> int:
    """The most keys, between two accesses, that were used before and will be used again."""
    change = [0] * (len(accesses) + 1)
    for number, reuse in enumerate(next_uses(accesses)):
        for count, at in _reused(reuse):
            change[number] += count
            change[int(at)] -= count
    return max(accumulate(change))


def _reused(reuse: Sequence[Reuse]) -> Iterator[tuple[int, float]]:
    """Runs of keys that are used again: how many, and by which access."""
    begin = 0
    for part in reuse:
        if part.at != NEVER:
            yield part.upto - begin, part.at
        begin = part.upto


def compare(
    loads: Sequence[Workload],
    infinite: Sequence[Sequence[int]],
    found: dict[str, list[list[int]]],
    label: str,
) -> list[Result]:
    """Clairvoyant against LRU at one capacity; the bound is an infinite cache. All seeds together."""
    total = sum(sum(load.prompt_tokens) for load in loads)
    most = _tokens(loads, infinite)
    hit = {policy: _tokens(loads, hits) for policy, hits in found.items()}
    lost = {policy: _avoidable(loads, infinite, hits) for policy, hits in found.items()}
    computed = {policy: max(1, total - tokens) for policy, tokens in hit.items()}
    share = {policy: 100 * tokens / total for policy, tokens in hit.items()}
    rows = [
        _Row("hit_tokens", "prompt tokens served from the cache", "tokens", hit, most),
        _Row("hit_share", "share of prompt tokens served from the cache", "%", share, 100 * most / total),
        _Row(
            "avoidable_p50",
            "median per call of tokens computed although an infinite cache would have held them",
            "tokens",
            {p: floor_rank(v, 0.5) for p, v in lost.items()},
        ),
        _Row(
            "avoidable_p99",
            "99th percentile per call of tokens computed although an infinite cache would have held them",
            "tokens",
            {p: floor_rank(v, 0.99) for p, v in lost.items()},
        ),
        _Row(
            "avoidable_share",
            "share of computed prompt tokens that an infinite cache would have held",
            "%",
            {p: 100 * sum(v) / computed[p] for p, v in lost.items()},
        ),
    ]
    return [row.result(label) for row in rows]


@dataclass(frozen=True, slots=True)
class _Row:
    """One quantity of both policies; the bound of what is lost is nothing."""

    metric: str
    claim: str
    unit: str
    values: Mapping[str, float]
    bound: float = 0.0

    def result(self, label: str) -> Result:
        return compared(
            f"{self.metric}_{label}",
            f"{self.claim}, with room for {label} the peak working set",
            self.unit,
            self.values[CEILING],
            better="lower" if self.bound == 0.0 else "higher",
            baseline=self.values[BASELINE],
            baseline_name=BASELINE,
            bound=self.bound,
        )


def _tokens(loads: Sequence[Workload], hits: Sequence[Sequence[int]]) -> int:
    return sum(load.key_tokens * sum(found) for load, found in zip(loads, hits, strict=True))


def _avoidable(
    loads: Sequence[Workload], infinite: Sequence[Sequence[int]], hits: Sequence[Sequence[int]]
) -> list[int]:
    """Per call of all seeds, sorted: tokens that an infinite cache would have found and this one did not."""
    return sorted(
        load.key_tokens * (most - found)
        for load, ideal, own in zip(loads, infinite, hits, strict=True)
        for most, found in zip(ideal, own, strict=True)
    )
