"""Ticks are round, inside, few and rising; labels differ; scales stay in their frame."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.report.axis import Axis, humanize, log_ticks, nice_ticks, resolve

NUMBERS = st.floats(-1e15, 1e15, allow_nan=False)
SIZES = st.floats(1e-9, 1e12)


@settings(deadline=None)
@given(NUMBERS, SIZES, st.integers(2, 12))
def test_nice_ticks(low: float, size: float, target: int) -> None:
    high = low + max(size, abs(low) * 1e-6)
    ticks = nice_ticks(low, high, target)
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1) if len(ticks) > 1 else None
    assert 1 <= len(ticks) <= target + 1
    assert all(low - 1e-6 * (high - low) <= t <= high + 1e-6 * (high - low) for t in ticks)
    if step is not None:
        lead = step / 10 ** math.floor(math.log10(step) + 1e-6)
        assert min(abs(lead - nice) for nice in (1, 2, 2.5, 5)) < 1e-3


@settings(deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e12))
def test_log_ticks(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 10
    assert all(a < b for a, b in pairwise(ticks))
    assert ticks[0] >= low * 0.999 and ticks[-1] <= low * factor * 1.001


@settings(deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6),
    st.sampled_from(["", "s", "B", "%"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_any_values_give_a_usable_scale(
    values: list[float], unit: str, log: bool, from_zero: bool, snug: bool
) -> None:
    scale = resolve(Axis(unit=unit, log=log), values, from_zero=from_zero, snug=snug)
    assert scale.low < scale.high and scale.ticks
    places = [scale.share(position) for position, _ in scale.ticks]
    assert all(0 <= place <= 1 for place in places) and places == sorted(places)
    assert all(0 <= scale.share(v) <= 1 for v in values if math.isfinite(v))


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=5), st.sampled_from(["", "s", "B"]))
def test_neighbouring_labels_differ(values: list[float], unit: str) -> None:
    labels = [text for _, text in resolve(Axis(unit=unit), values, from_zero=True).ticks]
    assert len(set(labels)) == len(labels)


def test_fixed_ends_are_kept() -> None:
    scale = resolve(Axis(low=0, high=100), [250.0, -3.0])
    assert (scale.low, scale.high) == (0, 100)
    assert [t for _, t in scale.ticks] == ["0", "20", "40", "60", "80", "100"]
    snug = resolve(Axis(unit="s"), [0.0, 3700.0], snug=True)
    assert (snug.low, snug.high, snug.caption) == (0.0, 3700.0, "min")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.0123, "s", "12.3 ms"),
        (90.0, "s", "90 s"),
        (600.0, "s", "10 min"),
        (86_400.0, "s", "24 h"),
        (3 * 2**30, "B", "3 GiB"),
        (12_500.0, "", "12.5k"),
        (-4.2e6, "tok/s", "-4.2M tok/s"),
        (36.64, "%", "36.6 %"),
        (1e16, "", "10,000T"),
    ],
)
def test_humanize(value: float, unit: str, text: str) -> None:
    assert humanize(value, unit) == text
