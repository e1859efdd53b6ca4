"""Exact quantiles under a stated rule, and empirical distributions thin enough to draw.

It never interpolates: every quantile is a value that occurred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ordered: Sequence[float], p: float) -> float:
    """The smallest value of sorted `ordered` that at least a share `p` in (0, 1] of the values do not exceed.

    Raises `ValueError` for no values or another `p`.
    """
    if not len(ordered) or not 0 < p <= 1:
        raise ValueError(f"nearest_rank needs values and 0 < p <= 1, got {len(ordered)} values and p={p}")
    n = len(ordered)
    rank = math.ceil(p * n)
    # p * n is rounded: step to the exact rank, the smallest with rank / n >= p.
    while rank > 1 and (rank - 1) / n >= p:
        rank -= 1
    return ordered[min(n, max(1, rank)) - 1]


def floor_rank(ordered: Sequence[float], p: float) -> float:
    """`ordered[min(n - 1, floor(p n))]` of sorted `ordered`, `p` in [0, 1]: the rule of the published trace studies.

    Raises `ValueError` for no values or another `p`.
    """
    if not len(ordered) or not 0 <= p <= 1:
        raise ValueError(f"floor_rank needs values and 0 <= p <= 1, got {len(ordered)} values and p={p}")
    n = len(ordered)
    return ordered[min(n - 1, math.floor(p * n))]


def cdf(values: Sequence[float], max_points: int = 400) -> list[tuple[float, float]]:
    """The empirical distribution as rising (value, share of values <= it), the last share being 1.

    At most `max_points` (>= 2) points: those kept lie on the exact curve, always with the smallest and the largest
    value. Raises `ValueError` for no or non-finite values.
    """
    if not len(values) or not all(map(math.isfinite, values)):
        raise ValueError("a distribution needs at least one value, all of them finite")
    if max_points < 2:
        raise ValueError(f"max_points must be at least 2, got {max_points}")
    ordered = sorted(values)
    n = len(ordered)
    steps = [(v, (i + 1) / n) for i, v in enumerate(ordered) if i + 1 == n or ordered[i + 1] != v]
    if len(steps) <= max_points:
        return steps
    last = len(steps) - 1
    return [steps[i * last // (max_points - 1)] for i in range(max_points)]
