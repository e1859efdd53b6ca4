"""Ticks at round numbers, readable labels with units, and the map from data to pixels.

It draws nothing. Units that it scales by itself: "s" (seconds) and "B" (bytes); any other is printed as given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_SECONDS = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"))
_BYTES = ((1.0, "B"), (2.0**10, "KiB"), (2.0**20, "MiB"), (2.0**30, "GiB"), (2.0**40, "TiB"))
_COUNTS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
_LADDERS = ("s", "B")
"""Units whose steps have names of their own; every other unit counts in k, M, G, T."""

_LARGEST = 1e290
"""Beyond this a difference of two values overflows; such values count as missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis shows. `unit` is that of the data; `log` needs positive data and drops the rest."""

    label: str = ""
    unit: str = ""
    log: bool = False
    low: float | None = None
    high: float | None = None
    """Fixed ends in data units; by default the data decides."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A resolved axis: data ends, the ticks between them with their text, and the caption with its unit."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]
    caption: str

    def share(self, value: float) -> float:
        """Where `value` lies between the ends, 0 to 1; clamped, as a drawing must not leave its frame."""
        if self.log:
            if value <= self.low:
                return 0.0
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))


def nice_ticks(low: float, high: float, target: int = 6) -> list[float]:
    """About `target` multiples of 1, 2, 2.5 or 5 times a power of ten inside [low, high], low < high."""
    assert low < high and target >= 2
    rough = (high - low) / target
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float, target: int = 8) -> list[float]:
    """Powers of ten inside [low, high]; with 2 and 5 between them where fewer than three would show."""
    assert 0 < low < high
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))

    def inside(steps: tuple[int, ...], stride: int) -> list[float]:
        found = (m * 10.0**e for e in range(first, last + 1, stride) for m in steps)
        return [v for v in found if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]

    decades = inside((1,), 1)
    if len(decades) < 3:
        fine = inside((1, 2, 5), 1)
        return fine if len(fine) >= 2 else [low, high]
    return inside((1,), -(-len(decades) // target))


def humanize(value: float, unit: str = "", digits: int = 3) -> str:
    """A value with its unit for reading: 0.0123 s -> "12.3 ms", 3 * 2**30 B -> "3 GiB", 12,500 -> "12.5k"."""
    factor, name = _scaled(abs(value), unit)
    text = f"{value / factor:.{digits}g}"
    if "e" in text:
        text = f"{value / factor:,.0f}" if abs(value / factor) >= 1 else text
    if unit in _LADDERS:
        return f"{text} {name}"
    return f"{text}{name}" + (f" {unit}" if unit else "")


def resolve(
    axis: Axis, values: Iterable[float], *, from_zero: bool = False, snug: bool = False, target: int = 6
) -> Scale:
    """Fits `axis` around the finite `values`.

    A linear axis ends on ticks, or where the data ends if `snug`; `from_zero` keeps 0 in view on it.
    """
    data = [v for v in values if abs(v) <= _LARGEST and (v > 0 or not axis.log)]
    low = axis.low if axis.low is not None else min(data, default=1.0 if axis.log else 0.0)
    high = axis.high if axis.high is not None else max(data, default=10.0 if axis.log else 1.0)
    if axis.log:
        return _log_scale(axis, low, high)
    if from_zero:
        low = min(low, 0.0) if axis.low is None else low
        high = max(high, 0.0) if axis.high is None else high
    low, high = _opened(low, high)
    factor, unit = _scaled(max(abs(low), abs(high)), axis.unit)
    ticks = nice_ticks(low / factor, high / factor, target)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else ticks[0] or 1.0
    if axis.high is None and not snug and high / factor > ticks[-1] + 1e-9 * step:
        ticks.append(ticks[-1] + step)
    if axis.low is None and not snug and low / factor < ticks[0] - 1e-9 * step:
        ticks.insert(0, ticks[0] - step)
    low, high = min(low, ticks[0] * factor), max(high, ticks[-1] * factor)
    ladder = axis.unit in _LADDERS
    suffix = "" if ladder else unit
    named = tuple((t * factor, _plain(t, step) + (suffix if t else "")) for t in ticks)
    return Scale(low, high, False, named, _caption(axis.label, unit if ladder else axis.unit))


def _opened(low: float, high: float) -> tuple[float, float]:
    """The ends, moved apart where they (nearly) coincide: an axis needs a length."""
    if high - low > max(1e-9 * max(abs(low), abs(high)), 1e-290):
        return low, high
    pad = 0.5 * max(abs(low), abs(high)) if max(abs(low), abs(high)) > 1e-290 else 1.0
    return (low, low + pad) if low >= 0 else (low - pad, low + pad)


def _log_scale(axis: Axis, low: float, high: float) -> Scale:
    low = max(low, 1e-290)
    if high <= low * 1.0001:
        low, high = low / 2, low * 2
    named = tuple((t, humanize(t, axis.unit if axis.unit in _LADDERS else "")) for t in log_ticks(low, high))
    return Scale(low, high, True, named, _caption(axis.label, "" if axis.unit in _LADDERS else axis.unit))


def _scaled(size: float, unit: str) -> tuple[float, str]:
    """The largest step of the unit's ladder that keeps `size` at 1 or more (minutes from 3 min, hours from 3 h)."""
    if unit == "s":
        ladder, slack = _SECONDS, 3.0
    elif unit == "B":
        ladder, slack = _BYTES, 1.0
    else:
        ladder, slack = _COUNTS, 1.0
    chosen = ladder[2] if unit == "s" and size == 0 else ladder[0]
    for factor, name in ladder:
        if size >= factor * (slack if factor > 1 and unit == "s" else 1.0) * 0.9999999:
            chosen = (factor, name)
    return chosen


def _plain(value: float, step: float) -> str:
    """As many decimals as neighbouring ticks need to differ."""
    if step < 1e-9:
        return f"{value:.6g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step, decimals) != round(step, decimals + 2):
        decimals += 1
    return f"{value:,.{min(decimals, 12)}f}" if value else "0"


def _caption(label: str, unit: str) -> str:
    if not unit:
        return label
    return f"{label} ({unit})" if label else unit
