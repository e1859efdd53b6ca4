"""A known order of prompts through the real KV cache: each is matched and stored at once, as if it ran instantly.

Knows neither queues nor durations, so what differs between two replays is the eviction policy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from belady.core.cache import KvCache
from belady.core.config import CoreConfig, GroupConfig
from belady.core.forecast import Reuse
from belady.core.plan import NO_PAGE
from belady.core.prefix_tree import KEY_BYTES
from belady.policy.registry import load
from belady.sim.workload.future import next_uses


class Access(NamedTuple):
    """One use of a prompt: its prefix keys, int32 little-endian, one page each."""

    namespace: str
    keys: bytes


def replay(accesses: Sequence[Access], capacity: int, policy: str) -> list[int]:
    """Keys found cached by each access, in order, with room for `capacity` keys (at least 2) under `policy`.

    After an access its new keys compete with everything else for the room: what is held then is the policy's choice
    among resident and new. (Pages beyond the capacity exist only while an access runs.) Every policy is told the next
    use of each key; only an offline one looks.
    """
    futures = next_uses(accesses)
    longest = max((len(a.keys) // KEY_BYTES for a in accesses), default=0)
    config = CoreConfig(groups=(GroupConfig(name="full", pages=capacity + longest),), page_size=1)
    cache = KvCache(config, load("evict", policy))
    spare = cache.take(0, longest, 0.0)
    assert spare is not None
    hits = [
        _access(cache, access, future, spare, float(number))
        for number, (access, future) in enumerate(zip(accesses, futures, strict=True))
    ]
    cache.check_integrity([spare])
    return hits


def _access(cache: KvCache, access: Access, future: Sequence[Reuse], spare: list[int], now: float) -> int:
    """Match, compute what is missing into spare pages, store, then let the policy free as many again."""
    match = cache.match(access.namespace, access.keys, None, now)
    new = len(access.keys) // KEY_BYTES - match.keys
    if new:
        cut = len(spare) - new
        pages = spare[cut:]
        del spare[cut:]
        table = [NO_PAGE] * match.keys + pages
        span, _ = cache.insert(match.span, access.keys, [table], None, now, access.namespace)
    else:
        span = match.span
    cache.annotate(span, future, now)
    cache.unpin(match.span, now)
    if new:
        freed = cache.take(0, new, now)
        assert freed is not None, "an idle cache can always give back what was stored last"
        spare.extend(freed)
    cache.events.clear()
    return match.keys
