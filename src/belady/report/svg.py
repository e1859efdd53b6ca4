"""Small inline-SVG plots: lines and steps, stacked areas, distributions, bars.

Plots take their colours from CSS variables of the page (`STYLE`), so one drawing serves light and dark pages, and
explain themselves through `<title>` tooltips; no script runs. This file knows pixels and text, not what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from belady.report.axis import Axis, Scale, humanize, resolve
from belady.report.quantile import cdf, nearest_rank
from belady.report.thin import shared_peaks, spikes

WIDTH, HEIGHT = 560, 270
MAX_POINTS = 600
"""Points per drawn line; longer series are thinned without losing their extremes."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 40, 44
_LEGEND_ROW, _CHAR = 18, 6.4
_PALETTE = 8
_HOVER_POINTS = 80

STYLE = """
:root { --ink: #1f2430; --muted: #667085; --grid: #e6e8ee; --axis: #aab1c0; --paper: #ffffff;
  --c0: #2f6fde; --c1: #e07b1a; --c2: #1a9a6c; --c3: #c2418f; --c4: #7a5bd6; --c5: #b58900; --c6: #0f9bb4; --c7: #d64545; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9f0; --muted: #98a2b3; --grid: #2a3140; --axis: #566074; --paper: #141820;
    --c0: #6ea8ff; --c1: #ffab5e; --c2: #4fd1a1; --c3: #f07cc0; --c4: #ab95ff; --c5: #e3c04f; --c6: #4fd0e6; --c7: #ff8080; } }
svg.plot { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg.plot text { fill: var(--muted); } svg.plot text.ink { fill: var(--ink); } svg.plot text.name { fill: var(--ink); font-weight: 600; font-size: 14px; }
svg.plot .grid { stroke: var(--grid); } svg.plot .axis { stroke: var(--axis); }
svg.plot .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } svg.plot .area { fill-opacity: .78; stroke: var(--paper); stroke-width: .6; }
svg.plot .hit { fill: transparent; } svg.plot .hit:hover { fill: var(--ink); }
""" + "".join(f"svg.plot .s{i} {{ stroke: var(--c{i}); }} svg.plot .f{i} {{ fill: var(--c{i}); }}\n" for i in range(_PALETTE))  # fmt: skip


class Svg(str):
    """Markup made by this file: the only kind of string that a page embeds without escaping it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One named curve. `x` rises; a `y` that is not finite leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} x and {len(self.y)} y values")
        if any(not math.isfinite(v) for v in self.x):
            raise ValueError(f"series {self.name!r} has an x that is not finite")
        if any(b < a for a, b in pairwise(self.x)):
            raise ValueError(f"series {self.name!r} must be sorted by x")


@dataclass(frozen=True, slots=True)
class _Frame:
    """The drawing area in pixels and its two scales."""

    x: Scale
    y: Scale
    top: float
    left: float = _LEFT
    width: float = WIDTH - _LEFT - _RIGHT
    height: float = HEIGHT - _TOP - _BOTTOM

    def px(self, value: float) -> float:
        return self.left + self.width * self.x.share(value)

    def py(self, value: float) -> float:
        return self.top + self.height * (1 - self.y.share(value))


def line_plot(title: str, series: Sequence[Series], x: Axis, y: Axis, *, step: bool = False) -> Svg:
    """Curves over a shared x; `step` holds each value until the next point, as a state over time does."""
    xs = resolve(x, (v for s in series for v in s.x), snug=True)
    ys = resolve(y, (v for s in series for v in s.y), from_zero=True)
    legend, top = _legend([s.name for s in series])
    frame = _Frame(xs, ys, top)
    body = [legend, *_axes(frame)]
    if not any(math.isfinite(v) for s in series for v in s.y):
        body.append(_no_data(frame))
    for index, one in enumerate(series):
        body.extend(_curve(frame, one, index, x, y, step))
    return _document(title, top + frame.height + _BOTTOM, body)


def stacked_area(title: str, series: Sequence[Series], x: Axis, y: Axis) -> Svg:
    """Parts of a whole over one x that all series share, the first at the bottom; values must be finite and >= 0."""
    xs_data = list(series[0].x) if series else []
    for one in series:
        if list(one.x) != xs_data:
            raise ValueError(f"series {one.name!r} has other x values than {series[0].name!r}")
        if any(not math.isfinite(v) or v < 0 for v in one.y):
            raise ValueError(f"series {one.name!r} has a part that is negative or not finite")
    keep = shared_peaks([s.y for s in series], MAX_POINTS)
    edges = [[0.0] * len(keep)]
    for one in series:
        edges.append([below + one.y[i] for below, i in zip(edges[-1], keep, strict=True)])
    legend, top = _legend([s.name for s in series])
    frame = _Frame(resolve(x, xs_data, snug=True), resolve(y, edges[-1], from_zero=True), top)
    body = [legend, *_axes(frame)]
    if not keep:
        body.append(_no_data(frame))
    for index, one in enumerate(series if keep else ()):
        body.append(_band(frame, [xs_data[i] for i in keep], edges[index], edges[index + 1], one, index, y))
    return _document(title, top + frame.height + _BOTTOM, body)


def cdf_plot(title: str, samples: Mapping[str, Sequence[float]], x: Axis) -> Svg:
    """Empirical distributions, one step curve a sample; on a log axis values <= 0 count at the left edge."""
    curves = {name: cdf(values, MAX_POINTS) for name, values in samples.items() if len(values)}
    xs = resolve(x, (v for curve in curves.values() for v, _ in curve), from_zero=True)
    ys = resolve(Axis(label="share of values", unit="%", low=0, high=100), (), target=5)
    legend, top = _legend(list(samples))
    frame = _Frame(xs, ys, top)
    body = [legend, *_axes(frame)]
    if not curves:
        body.append(_no_data(frame))
    for index, name in enumerate(samples):
        if name in curves:
            body.append(_distribution(frame, name, index, curves[name], sorted(samples[name]), x.unit))
    return _document(title, top + frame.height + _BOTTOM, body)


def bar_chart(
    title: str, categories: Sequence[str], groups: Mapping[str, Sequence[float | None]], x: Axis
) -> Svg:
    """Horizontal bars: one block a category, one bar a group in it; None leaves a bar out."""
    for name, values in groups.items():
        if len(values) != len(categories):
            raise ValueError(f"group {name!r} has {len(values)} values for {len(categories)} categories")
        if any(v is not None and not math.isfinite(v) for v in values):
            raise ValueError(f"group {name!r} has a value that is not finite; use None for a missing one")
    bar, gap = (18, 14) if len(groups) > 1 else (20, 12)
    height = max(1, len(categories)) * (bar * max(1, len(groups)) + gap) + gap
    left = min(200.0, 28 + _CHAR * max((len(c) for c in categories), default=0))
    scale = resolve(
        x, (v for values in groups.values() for v in values if v is not None), from_zero=not x.log
    )
    legend, top = _legend(list(groups), caption=False) if len(groups) > 1 else ("", 32.0)
    frame = _Frame(scale, Scale(0, 1, False, (), ""), top, left, WIDTH - left - 84, height)
    body = [legend, *_axes(frame)]
    for row, category in enumerate(categories):
        y = top + gap + row * (bar * len(groups) + gap)
        middle = y + bar * len(groups) / 2 + 4
        body.append(_text(left - 8, middle, _shorten(category, left - 24), "end", "ink", tip=category))
        for index, (name, values) in enumerate(groups.items()):
            value = values[row]
            if value is not None:
                body.append(
                    _bar(frame, y + index * bar, bar - 3, value, index, f"{category}, {name}", x.unit)
                )
    if not categories:
        body.append(_no_data(frame))
    return _document(title, top + height + _BOTTOM, body)


def _curve(frame: _Frame, one: Series, index: int, x: Axis, y: Axis, step: bool) -> list[str]:
    """The polyline(s) of one series, broken at gaps, and invisible points that carry the values."""
    keep = spikes(one.y, MAX_POINTS)
    runs: list[list[tuple[float, float]]] = [[]]
    for i in keep:
        drawable = math.isfinite(one.y[i]) and (one.x[i] > 0 or not x.log) and (one.y[i] > 0 or not y.log)
        if drawable:
            runs[-1].append((one.x[i], one.y[i]))
        elif runs[-1]:
            runs.append([])
    path = "".join(_path(frame, run, step) for run in runs if run)
    if not path:
        return []
    shown = [point for run in runs for point in run]
    stride = -(-len(shown) // _HOVER_POINTS)
    hits = (
        f'<circle class="hit" cx="{frame.px(a):.1f}" cy="{frame.py(b):.1f}" r="4">'
        f"{_tip(f'{one.name}: {humanize(b, y.unit)} at {humanize(a, x.unit)}')}</circle>"
        for a, b in shown[::stride]
    )
    return [f'<path class="line s{index % _PALETTE}"{_dash(index)} d="{path}">{_tip(one.name)}</path>', *hits]


def _path(frame: _Frame, run: Sequence[tuple[float, float]], step: bool) -> str:
    parts = [f"M{frame.px(run[0][0]):.1f} {frame.py(run[0][1]):.1f}"]
    if len(run) == 1:
        parts.append("h.1")
    for a, b in run[1:]:
        parts.append(
            f"H{frame.px(a):.1f}V{frame.py(b):.1f}" if step else f"L{frame.px(a):.1f} {frame.py(b):.1f}"
        )
    return "".join(parts)


def _band(
    frame: _Frame,
    xs: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    one: Series,
    index: int,
    y: Axis,
) -> str:
    upper = [f"{frame.px(a):.1f} {frame.py(b):.1f}" for a, b in zip(xs, high, strict=True)]
    lower = [f"{frame.px(a):.1f} {frame.py(b):.1f}" for a, b in zip(xs, low, strict=True)]
    tip = f"{one.name}: at most {humanize(max(one.y), y.unit)}, at the end {humanize(one.y[-1], y.unit)}"
    return f'<path class="area f{index % _PALETTE}" d="M{"L".join(upper + lower[::-1])}Z">{_tip(tip)}</path>'


def _distribution(
    frame: _Frame,
    name: str,
    index: int,
    curve: Sequence[tuple[float, float]],
    ordered: Sequence[float],
    unit: str,
) -> str:
    """A step curve from 0 at the smallest value to 100 % at the right edge, with marks at p50, p90 and p99."""
    path = _path(frame, [(curve[0][0], 0.0), *((v, 100 * share) for v, share in curve)], step=True)
    path += f"H{frame.left + frame.width:.1f}"
    quantiles = [(f"p{round(100 * p)}", nearest_rank(ordered, p), 100 * p) for p in (0.5, 0.9, 0.99)]
    tip = f"{name} (n={len(ordered):,}): " + ", ".join(f"{q} {humanize(v, unit)}" for q, v, _ in quantiles)
    marks = "".join(
        f'<circle class="f{index % _PALETTE}" cx="{frame.px(v):.1f}" cy="{frame.py(height):.1f}" r="3.2">'
        f"{_tip(f'{name} {q}: {humanize(v, unit)}')}</circle>"
        for q, v, height in quantiles
    )
    return f'<path class="line s{index % _PALETTE}"{_dash(index)} d="{path}">{_tip(tip)}</path>{marks}'


def _bar(frame: _Frame, y: float, height: float, value: float, index: int, what: str, unit: str) -> str:
    start = frame.left if frame.x.log else frame.px(0.0)
    end = frame.px(value)
    left, width = min(start, end), max(1.0, abs(end - start))
    text = humanize(value, unit)
    label = _text(max(start, end) + 5, y + height / 2 + 4, text, "start", "ink")
    return (
        f'<rect class="f{index % _PALETTE}" x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" '
        f'rx="2">{_tip(f"{what}: {text}")}</rect>{label}'
    )


def _axes(frame: _Frame) -> list[str]:
    """Grid lines, tick labels, the base line and both captions; y is captioned above its axis, not sideways."""
    bottom, right = frame.top + frame.height, frame.left + frame.width
    out = []
    for value, text in frame.y.ticks:
        y = frame.py(value)
        out.append(f'<line class="grid" x1="{frame.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(_text(frame.left - 8, y + 4, text, "end"))
    for value, text in frame.x.ticks:
        x = frame.px(value)
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{bottom}"/>')
        out.append(_text(x, bottom + 17, text, "middle"))
    base = frame.py(max(0.0, frame.y.low)) if frame.y.ticks and not frame.y.log else bottom
    out.append(f'<line class="axis" x1="{frame.left}" x2="{right}" y1="{base:.1f}" y2="{base:.1f}"/>')
    if not frame.y.ticks:
        zero = frame.left if frame.x.log else frame.px(0.0)
        out.append(f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="{frame.top}" y2="{bottom}"/>')
    out.append(_text(frame.left - 54 if frame.y.caption else 0, frame.top - 12, frame.y.caption, "start"))
    out.append(_text(frame.left + frame.width / 2, bottom + 36, frame.x.caption, "middle"))
    return out


def _legend(names: Sequence[str], *, caption: bool = True) -> tuple[str, float]:
    """Key swatches in as many rows as they need, and the pixel at which the plot area may begin."""
    out: list[str] = []
    x, y = 8.0, 42.0
    for index, name in enumerate(names):
        shown = _shorten(name, 240)
        width = 34 + _CHAR * len(shown)
        if x > 8 and x + width > WIDTH - 8:
            x, y = 8.0, y + _LEGEND_ROW
        out.append(
            f'<line class="s{index % _PALETTE}" stroke-width="3"{_dash(index)} x1="{x}" x2="{x + 16}" '
            f'y1="{y - 4}" y2="{y - 4}"/>' + _text(x + 21, y, shown, "start", "ink", tip=name)
        )
        x += width
    top = y + 12 if names else 32.0
    return "".join(out), top + (22 if caption else 0)


def _document(title: str, height: float, body: Sequence[str]) -> Svg:
    safe = _safe(title)
    return Svg(
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{safe}" '
        f'xmlns="http://www.w3.org/2000/svg">{_text(8, 18, title, "start", "name")}{"".join(body)}</svg>'
    )


def _no_data(frame: _Frame) -> str:
    return _text(frame.left + frame.width / 2, frame.top + frame.height / 2, "no data", "middle")


def _text(x: float, y: float, text: str, anchor: str, style: str = "", tip: str | None = None) -> str:
    if not text:
        return ""
    kind = f' class="{style}"' if style else ""
    more = _tip(tip) if tip is not None and tip != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{more}{_safe(text)}</text>'


def _tip(text: str) -> str:
    return f"<title>{_safe(text)}</title>"


def _dash(index: int) -> str:
    """Colours repeat after the palette: a dash keeps the next round apart."""
    return ' stroke-dasharray="5 3"' if index >= _PALETTE else ""


def _shorten(text: str, pixels: float) -> str:
    room = max(4, int(pixels / _CHAR))
    return text if len(text) <= room else text[: room - 1] + "…"


def _safe(text: str) -> str:
    """Escaped for element text and attributes, without control characters."""
    return escape("".join(c if c.isprintable() else " " for c in text), quote=True)
