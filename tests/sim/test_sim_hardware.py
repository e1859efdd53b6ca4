"""Device descriptions, and this machine's own limits in place of guesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from belady.report.bench_json import BenchReport, Result, to_json
from belady.sim.catalog import CatalogError
from belady.sim.hardware import THIS_CPU, devices, hardware


def test_every_device_says_where_its_figures_come_from() -> None:
    assert set(devices()) == {"h200", "h100", "a100", "l4", "rtx-4090", THIS_CPU}
    for device in devices().values():
        assert len(device.source) > 20
        assert min(device.bandwidth, device.memory, device.link, *device.flops.values()) > 0


def test_a_rate_that_a_device_lacks_is_an_error() -> None:
    with pytest.raises(CatalogError, match="a100 has no rate for 'float8'"):
        hardware("a100").rate("float8")


def _limits(path: Path, *results: Result) -> Path:
    path.write_text(
        to_json(BenchReport(name="limits", env={}, commit=None, params={}, results=list(results)))
    )
    return path


def test_measured_limits_replace_the_guess(tmp_path: Path) -> None:
    limits = _limits(
        tmp_path / "limits.json",
        Result(metric="memory_bandwidth", claim="", unit="GB/s", ours=25.0),
        Result(metric="memory_bandwidth", claim="", unit="GB/s", ours=21.0),
        Result(metric="flops_float32", claim="", unit="GFLOP/s", ours=123.0),
        Result(metric="something_else", claim="", unit="furlongs", ours=1.0),
    )
    device = hardware(THIS_CPU, limits)
    assert device.bandwidth == 25e9 and device.rate("float32") == 123e9
    assert device.rate("bfloat16") == devices()[THIS_CPU].rate("bfloat16"), "what was not measured stays"
    assert device.source.startswith("measured on this machine")


def test_without_a_measurement_the_guess_says_so(tmp_path: Path) -> None:
    device = hardware(THIS_CPU, tmp_path / "absent.json")
    assert "not a measurement" in device.source and device.memory > 0


def test_a_broken_limits_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text("{")
    with pytest.raises(CatalogError, match="run it again or delete"):
        hardware(THIS_CPU, path)
    _limits(path, Result(metric="memory_bandwidth", claim="", unit="furlongs/s", ours=1.0))
    with pytest.raises(CatalogError, match="furlongs"):
        hardware(THIS_CPU, path)
