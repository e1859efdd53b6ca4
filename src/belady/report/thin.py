"""Which points of a long series to draw: few enough for a page, with every peak and dip still in place."""

from __future__ import annotations

import math
from collections.abc import Sequence


def spikes(values: Sequence[float], limit: int) -> list[int]:
    """Rising indices, at most about `limit` (>= 4): first, lowest, highest and last of every equal run of points.

    A run holding a value that is not finite also keeps the first such index, so a gap stays a gap.
    """
    assert limit >= 4
    n = len(values)
    if n <= limit:
        return list(range(n))
    kept: list[int] = []
    for run in _runs(n, limit // 4):
        finite = [i for i in run if math.isfinite(values[i])]
        chosen = {run[0], run[-1]}
        if finite:
            chosen |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        if len(finite) < len(run):
            chosen.add(next(i for i in run if not math.isfinite(values[i])))
        kept.extend(sorted(chosen))
    return kept


def shared_peaks(parts: Sequence[Sequence[float]], limit: int) -> list[int]:
    """Rising indices for stacked series of equal length: first, last and the highest total of every run of points."""
    assert limit >= 3
    n = len(parts[0]) if parts else 0
    if n <= limit:
        return list(range(n))
    totals = [sum(values) for values in zip(*parts, strict=True)]
    kept: list[int] = []
    for run in _runs(n, limit // 3):
        kept.extend(sorted({run[0], max(run, key=totals.__getitem__), run[-1]}))
    return kept


def _runs(n: int, count: int) -> list[range]:
    return [range(i * n // count, (i + 1) * n // count) for i in range(count)]
