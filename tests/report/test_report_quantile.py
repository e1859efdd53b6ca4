"""Quantiles against brute force, and distributions against counting."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.report.quantile import cdf, floor_rank, nearest_rank

VALUES = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=80)
PERCENT = st.integers(1, 1000).map(lambda k: k / 1000)


@settings(deadline=None)
@given(VALUES, st.integers(1, 1000))
def test_nearest_rank_is_the_least_value_with_enough_below(values: list[float], mille: int) -> None:
    n = len(values)
    share = Fraction(mille, 1000)
    expected = min(v for v in values if Fraction(sum(w <= v for w in values), n) >= share)
    assert nearest_rank(sorted(values), mille / 1000) == expected


@settings(deadline=None)
@given(VALUES, PERCENT)
def test_floor_rank_is_the_stated_rule(values: list[float], p: float) -> None:
    ordered = sorted(values)
    assert floor_rank(ordered, p) == ordered[min(len(values) - 1, int(p * len(values)))]


def test_the_two_rules_differ_where_they_should() -> None:
    ordered = [1.0, 2.0, 3.0, 4.0]
    assert (nearest_rank(ordered, 0.5), floor_rank(ordered, 0.5)) == (2.0, 3.0)
    assert (nearest_rank(ordered, 1.0), floor_rank(ordered, 1.0), floor_rank(ordered, 0.0)) == (4.0, 4.0, 1.0)


@settings(deadline=None)
@given(VALUES, st.integers(2, 30))
def test_cdf_points_lie_on_the_exact_curve(values: list[float], limit: int) -> None:
    points = cdf(values, limit)
    assert len(points) <= limit
    assert points[0][0] == min(values) and points[-1] == (max(values), 1.0)
    assert all(share == sum(w <= v for w in values) / len(values) for v, share in points)
    assert [v for v, _ in points] == sorted({v for v, _ in points})


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_cdf_refuses_what_it_cannot_draw(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        cdf(bad)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_quantiles_refuse_other_shares(p: float) -> None:
    for rule in (nearest_rank, floor_rank):
        with pytest.raises(ValueError, match="p="):
            rule([1.0], p)
        with pytest.raises(ValueError, match="0 values"):
            rule([], 0.5)
