"""Timing on a machine that others use too: repeats, of which the least disturbed one counts.

A neighbour can only add time, so the minimum of repeats of a fixed piece of work estimates its cost best; where a
distribution is claimed, rounds are compared by their medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def fastest(work: Callable[[], object], repeats: int, at_most: float) -> float:
    """Least wall seconds of up to `repeats` calls after one that is not counted; stops early once `at_most` seconds
    are spent, never before one counted call."""
    spent = seconds(work)
    best: float | None = None
    for _ in range(repeats):
        took = seconds(work)
        spent += took
        best = took if best is None else min(best, took)
        if spent > at_most:
            break
    assert best is not None, "at least one repeat is needed"
    return best


def calmest(rounds: Sequence[Sequence[float]]) -> list[float]:
    """The round of the lowest median, sorted."""
    return sorted(min(rounds, key=median))
