"""`prefix`: the Mooncake conversation trace through the prefix tree, against block LRU written independently.

Blocks of 512 tokens are keys of the tree, so whole-block hits can be compared id by id. The second side knows no tree:
an ordered dictionary of ids, touched from the tail of a prompt to its head. The third is the published result of the
same rule; the ceiling is clairvoyant eviction (Belady, "A study of replacement algorithms", 1966).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from belady.bench.experiment import BenchError, Note
from belady.bench.replay import Access, replay
from belady.bench.traces import locate
from belady.formats import read_mooncake
from belady.report.bench_json import Result

CLAIM = "the prefix tree finds exactly the blocks that block LRU would hold, at every capacity"
PUBLISHED = {0: 36.64, 50_000: 35.46, 10_000: 21.16, 1_000: 4.45}
"""Block hit rate in % of the whole trace under LRU touched tail first, by capacity in blocks (0: infinite)."""
TOLERANCE = 0.01
"""Points. The published figures have two digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Capacities in blocks of 512 tokens; 0 stands for room for everything."""

    capacities: tuple[int, ...] = (0, 50_000, 10_000, 1_000)
    clairvoyant: bool = True


def params(quick: bool) -> Params:
    return Params()


def run(params: Params, note: Note) -> list[Result]:
    path, whole = locate("mooncake/conversation_trace.jsonl", "mooncake_excerpt.jsonl", note)
    prompts = [row.hash_ids for row in read_mooncake(path)]
    if not prompts:
        raise BenchError(f"{path} holds no request")
    results = []
    for capacity in params.capacities:
        published = PUBLISHED.get(capacity) if whole else None
        results += measure(prompts, capacity, published, clairvoyant=params.clairvoyant)
    return results


def measure(
    prompts: Sequence[Sequence[int]], capacity: int, published: float | None, *, clairvoyant: bool
) -> list[Result]:
    """Hit rates of one capacity (0: infinite) in % of all block references."""
    references = sum(map(len, prompts))
    distinct = len({block for prompt in prompts for block in prompt})
    room = max(2, capacity or distinct)
    accesses = [Access("", array("i", prompt).tobytes()) for prompt in prompts]
    tree, brute = replay(accesses, room, "lru"), block_lru(prompts, room)
    ceiling = replay(accesses, room, "clairvoyant") if clairvoyant and capacity else tree
    ours, baseline, bound = (100 * sum(hits) / references for hits in (tree, brute, ceiling))
    goal = baseline if published is None else published
    label = str(capacity) if capacity else "infinite"
    room_for = f"{capacity:,} blocks" if capacity else "every block"
    what = "the published rate" if published is not None else "block LRU of the same run"
    results = [
        Result(
            metric=f"block_hit_{label}",
            claim=f"block hit rate with room for {room_for} is within {TOLERANCE} points of {what}",
            unit="%",
            ours=ours,
            baseline=baseline,
            baseline_name="block LRU, tail first",
            ratio=ours / baseline if baseline else None,
            bound=bound,
            goal=goal,
            met=max(abs(ours - baseline), abs(ours - goal)) <= TOLERANCE,
            exact=tree == brute,
        )
    ]
    if clairvoyant and capacity:
        results.append(
            Result(
                metric=f"clairvoyant_gap_{label}",
                claim=f"points of block hit rate that eviction by farthest next use gains over LRU at {room_for}",
                unit="points",
                ours=bound - ours,
            )
        )
    return results


def block_lru(prompts: Sequence[Sequence[int]], capacity: int) -> list[int]:
    """Leading resident ids of each prompt under LRU over single ids; a prompt touches its ids tail first."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = []
    for prompt in prompts:
        found = 0
        for block in prompt:
            if block not in held:
                break
            found += 1
        hits.append(found)
        for block in reversed(prompt):
            held[block] = None
            held.move_to_end(block)
            if len(held) > capacity:
                held.popitem(last=False)
    return hits
