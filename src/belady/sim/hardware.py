"""What a device can do: arithmetic, bandwidth, memory and link, each with where the figure comes from.

Knows neither models nor steps. `link` is informational: no cost model reads it. `this-cpu` is a stated guess until a measurement of this machine is given.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from belady.report.bench_json import BenchReport, from_json
from belady.sim.catalog import CatalogError, load_table, pick

THIS_CPU = "this-cpu"
MEASURED = {
    "flops_float32": "float32",
    "flops_float16": "float16",
    "flops_bfloat16": "bfloat16",
    "ops_int8": "int8",
}
"""Metrics of `belady bench limits` that replace the guessed rates, and the number format of each."""
MEASURED_BANDWIDTH = "memory_bandwidth"
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device. `flops`: dense peak FLOP/s by number format; bandwidths in bytes/s, memory in bytes."""

    name: str
    title: str
    flops: dict[str, float]
    bandwidth: float
    memory: float
    link: float
    source: str

    def rate(self, dtype: str) -> float:
        """Peak FLOP/s at `dtype`; raises `CatalogError` where the device has none."""
        found = self.flops.get(dtype)
        if found is None:
            raise CatalogError(f"{self.name} has no rate for {dtype!r}. It has: {', '.join(self.flops)}")
        return found


def devices() -> dict[str, Hardware]:
    """All shipped descriptions by name."""
    return load_table("hardware.toml", Hardware)


def hardware(name: str, limits: Path | None = None) -> Hardware:
    """The device called `name`. For `this-cpu`, `limits` is the JSON of `belady bench limits`, used where it exists,
    and the memory is this machine's.

    Reads files. Raises `CatalogError` for an unknown name or a limits file that cannot be used.
    """
    device = pick("device", name, devices())
    if device.name != THIS_CPU:
        return device
    device = replace(device, memory=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return device if limits is None or not limits.exists() else measured(device, limits)


def measured(device: Hardware, limits: Path) -> Hardware:
    """`device` with every rate that the limits report holds (best result per metric); the others stay guesses."""
    try:
        report: BenchReport = from_json(limits.read_bytes())
        found = _best(report)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise CatalogError(
            f"{limits}: not a report of `belady bench limits` ({error}); run it again or delete the file"
        ) from error
    flops = {**device.flops, **{MEASURED[m]: v for m, v in found.items() if m in MEASURED}}
    bandwidth = found.get(MEASURED_BANDWIDTH, device.bandwidth)
    named = ", ".join(sorted(found)) or "nothing of use"
    return replace(
        device,
        flops=flops,
        bandwidth=bandwidth,
        link=bandwidth,
        source=f"measured on this machine by `belady bench limits` ({named}); the rest: {device.source}",
    )


def _best(report: BenchReport) -> dict[str, float]:
    found: dict[str, float] = {}
    for result in report.results:
        if result.ours is not None and (result.metric in MEASURED or result.metric == MEASURED_BANDWIDTH):
            value = result.ours * _unit(result.unit)
            found[result.metric] = max(value, found.get(result.metric, 0.0))
    return found


def _unit(unit: str) -> float:
    """The factor of a unit such as `GB/s`, `GFLOP/s` or `TOP/s`."""
    name = unit.removesuffix("/s")
    for base in ("FLOP", "OP", "B"):
        if name.endswith(base) and name.removesuffix(base) in _SCALE:
            return _SCALE[name.removesuffix(base)]
    raise ValueError(f"unknown unit {unit!r}")
