"""Limits of the machine: every metric that a simulation of it reads is there. No value is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from belady.bench import limits, timing
from belady.cli import bench
from belady.report.bench_json import BenchReport
from belady.sim.hardware import MEASURED, MEASURED_BANDWIDTH, hardware

np = pytest.importorskip("numpy")
TINY = limits.Params(working_sets=(1, 2), matrix=32, repeats=2, seconds=0.2)


def note(text: str) -> None:
    raise AssertionError(f"nothing to note here: {text}")


def test_a_simulation_of_this_machine_uses_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    results = limits.run(TINY, note)
    rows = {r.metric: r for r in results}
    assert set(rows) == {"read_bandwidth_1mib", "read_bandwidth_2mib", MEASURED_BANDWIDTH, *MEASURED}
    assert rows[MEASURED_BANDWIDTH].ours == rows["read_bandwidth_2mib"].ours
    assert all(r.ours is not None and r.ours > 0 for r in results)
    monkeypatch.setenv("BELADY_CACHE", str(tmp_path / "new"))
    bench.keep(BenchReport(name="limits", env={}, commit=None, params={}, results=results))
    target = tmp_path / "new" / "limits.json"
    assert str(target) in capsys.readouterr().err
    device = hardware("this-cpu", target)
    assert device.bandwidth == pytest.approx(1e9 * (rows[MEASURED_BANDWIDTH].ours or 0))
    assert device.rate("int8") == pytest.approx(1e9 * (rows["ops_int8"].ours or 0))


def test_torch_probes_read_every_value() -> None:
    torch = pytest.importorskip("torch")
    size = 1 << 16
    for name, probe in limits._torch_probes(size).items():
        total = probe()
        assert isinstance(total, torch.Tensor)
        assert torch.isfinite(total.double()), name
    assert limits._torch_probes(size)["torch int64 sum"]() == size // 8


def test_numpy_measures_what_it_can_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    find = limits.importlib.util.find_spec
    monkeypatch.setattr(
        limits.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    notes: list[str] = []
    rows = {r.metric: r for r in limits.run(TINY, notes.append)}
    assert len(notes) == 1 and "torch is not installed" in notes[0]
    assert "flops_float32" in rows and "ops_int8" not in rows
    assert rows["flops_float32"].baseline is None


def test_fastest_counts_repeats_and_stops_in_time() -> None:
    calls: list[int] = []
    timing.fastest(lambda: calls.append(1), 5, 10.0)
    assert len(calls) == 6, "one call warms up and is not counted"
    calls.clear()
    timing.fastest(lambda: calls.append(1), 5, 0.0)
    assert len(calls) == 2


def test_calmest_round_has_the_lowest_median() -> None:
    assert timing.calmest([[9.0, 1.0, 9.0], [3.0, 2.0, 50.0]]) == [2.0, 3.0, 50.0]
