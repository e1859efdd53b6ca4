"""Plots are well-formed XML, keep their peaks, leave gaps and escape every name."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.report.axis import Axis
from belady.report.svg import Series, Svg, bar_chart, cdf_plot, line_plot, stacked_area
from belady.report.thin import shared_peaks, spikes

NS = "{http://www.w3.org/2000/svg}"
EVIL = '<script>alert("x")</script>&\x00'
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
COUNT, TIME = Axis(label="requests"), Axis(label="time", unit="s")


def _parse(svg: Svg) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.tag == NS + "svg"
    assert "nan" not in svg and "inf" not in svg.replace("info", "")
    return root


def _kind(root: ElementTree.Element, tag: str, css: str) -> list[ElementTree.Element]:
    return [e for e in root.iter(NS + tag) if css in e.get("class", "").split()]


@settings(deadline=None)
@given(st.lists(FLOATS, max_size=30), st.booleans(), st.booleans())
def test_lines_survive_any_values(ys: list[float], step: bool, log: bool) -> None:
    series = Series(name="a", x=list(range(len(ys))), y=ys)
    root = _parse(line_plot("t", [series], TIME, Axis(log=log), step=step))
    drawable = [y for y in ys if math.isfinite(y) and (y > 0 or not log)]
    assert bool(_kind(root, "path", "line")) == bool(drawable)


def test_a_gap_breaks_the_line() -> None:
    plot = line_plot("t", [Series(name="a", x=[0, 1, 2, 3, 4], y=[1, 2, math.nan, 3, 4])], TIME, COUNT)
    (path,) = _kind(_parse(plot), "path", "line")
    assert path.get("d", "").count("M") == 2


def test_a_step_moves_flat_then_up() -> None:
    plot = line_plot("t", [Series(name="a", x=[0, 1], y=[1, 2])], TIME, COUNT, step=True)
    (path,) = _kind(_parse(plot), "path", "line")
    assert "L" not in path.get("d", "") and path.get("d", "").count("H") == 1


def test_long_series_stay_small_and_keep_their_spike() -> None:
    ys = [0.0] * 50_000
    ys[31_337] = 99.0
    plot = line_plot("t", [Series(name="a", x=list(range(50_000)), y=ys)], TIME, COUNT)
    assert len(plot) < 40_000
    assert 31_337 in spikes(ys, 600)


@settings(deadline=None)
@given(st.lists(FLOATS, max_size=200), st.integers(4, 60))
def test_spikes_keep_extremes_ends_and_gaps(values: list[float], limit: int) -> None:
    kept = spikes(values, limit)
    assert kept == sorted(set(kept)) and len(kept) <= limit + limit // 4
    finite = [v for v in values if math.isfinite(v)]
    shown = [values[i] for i in kept if math.isfinite(values[i])]
    if finite:
        assert (min(shown), max(shown)) == (min(finite), max(finite))
    if values:
        assert (kept[0], kept[-1]) == (0, len(values) - 1)
    assert any(not math.isfinite(values[i]) for i in kept) == (len(finite) < len(values))


@settings(deadline=None)
@given(st.integers(1, 300), st.data())
def test_stacked_peaks_survive_thinning(n: int, data: st.DataObject) -> None:
    column = st.lists(st.integers(0, 9).map(float), min_size=n, max_size=n)
    parts = [data.draw(column), data.draw(column)]
    kept = shared_peaks(parts, 30)
    totals = [a + b for a, b in zip(*parts, strict=True)]
    assert len(kept) <= 30 and kept == sorted(set(kept))
    assert max(totals[i] for i in kept) == max(totals)


def test_areas_stack_from_the_bottom() -> None:
    xs = [0.0, 1.0]
    plot = stacked_area(
        "t", [Series(name="a", x=xs, y=[1, 1]), Series(name="b", x=xs, y=[2, 3])], TIME, COUNT
    )
    first, second = (p.get("d", "") for p in _kind(_parse(plot), "path", "area"))
    upper_edge_of_first = first[1:].split("L")[:2]
    assert second[1:-1].split("L")[2:] == upper_edge_of_first[::-1]


def test_distribution_marks_its_quantiles() -> None:
    plot = cdf_plot("t", {"ttft": [float(i) for i in range(1, 101)], "none": []}, TIME)
    titles = [e.text or "" for e in _parse(plot).iter(NS + "title")]
    assert "ttft (n=100): p50 50 s, p90 90 s, p99 99 s" in titles


def test_zero_counts_at_the_left_edge_of_a_log_axis() -> None:
    root = _parse(cdf_plot("t", {"a": [0.0, 0.0, 1.0, 10.0]}, Axis(log=True)))
    assert len(_kind(root, "path", "line")) == 1


def test_bars_leave_out_missing_values_and_grow_both_ways() -> None:
    plot = bar_chart("t", ["a", "b"], {"x": [-1.0, 3.0], "y": [None, 1.0]}, Axis(unit="%"))
    root = _parse(plot)
    bars = list(root.iter(NS + "rect"))
    assert len(bars) == 3
    left, right = (float(bars[i].get("x", "0")) for i in (0, 1))
    assert left < right


@pytest.mark.parametrize(
    "plot",
    [
        line_plot(EVIL, [Series(name=EVIL, x=[0, 1], y=[1, 2])], Axis(label=EVIL), Axis(unit=EVIL)),
        stacked_area(EVIL, [Series(name=EVIL, x=[0, 1], y=[1, 2])], Axis(label=EVIL), Axis(unit=EVIL)),
        cdf_plot(EVIL, {EVIL: [1.0, 2.0]}, Axis(label=EVIL)),
        bar_chart(EVIL, [EVIL], {EVIL: [1.0], "b": [2.0]}, Axis(unit=EVIL)),
    ],
    ids=["line", "area", "cdf", "bar"],
)
def test_names_are_text_and_never_markup(plot: Svg) -> None:
    root = _parse(plot)
    assert not list(root.iter(NS + "script")) and "<script" not in plot
    assert any("<script>" in (e.text or "") for e in root.iter(NS + "text"))


@pytest.mark.parametrize(
    "plot",
    [
        line_plot("t", [], TIME, COUNT),
        stacked_area("t", [], TIME, COUNT),
        cdf_plot("t", {"a": []}, TIME),
        bar_chart("t", [], {}, COUNT),
    ],
    ids=["line", "area", "cdf", "bar"],
)
def test_nothing_to_draw_says_so(plot: Svg) -> None:
    assert "no data" in [e.text for e in _parse(plot).iter(NS + "text")]


def _mixed_x() -> Any:
    return stacked_area("t", [Series(name="a", x=[0], y=[1]), Series(name="b", x=[1], y=[1])], TIME, COUNT)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Series(name="a", x=[0, 1], y=[1]), "2 x and 1 y"),
        (lambda: Series(name="a", x=[1, 0], y=[1, 1]), "sorted"),
        (lambda: Series(name="a", x=[math.nan], y=[1]), "finite"),
        (_mixed_x, "other x"),
        (lambda: stacked_area("t", [Series(name="a", x=[0], y=[-1])], TIME, COUNT), "negative"),
        (lambda: bar_chart("t", ["a"], {"g": []}, COUNT), "0 values"),
        (lambda: bar_chart("t", ["a"], {"g": [math.inf]}, COUNT), "None"),
    ],
)
def test_misuse_is_named(make: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()
