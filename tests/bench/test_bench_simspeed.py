"""The simulator's own speed is measured over a run in which every request ends."""

from __future__ import annotations

import pytest

from belady.bench import simspeed


def test_every_request_of_the_excerpt_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BELADY_DATA", raising=False)
    notes: list[str] = []
    found = simspeed.run(simspeed.Params(requests=40, repeats=1), notes.append)
    rows = {r.metric: r for r in found}
    assert len(notes) == 1 and "excerpt" in notes[0]
    assert set(rows) == {
        "requests_per_s",
        "requests_per_cpu_s",
        "speedup",
        "time_per_step",
        "iterations_per_step",
    }
    assert rows["requests_per_s"].goal == 2000 and all(r.ours is not None and r.ours > 0 for r in found)


def test_the_scenario_limits_the_requests() -> None:
    from pathlib import Path

    chosen = simspeed.scenario(simspeed.Params(requests=7), Path("x.jsonl"))
    assert chosen.workload.limit == 7 and chosen.fleet.replicas == 1
    assert simspeed.scenario(simspeed.Params(), Path("x.jsonl")).workload.limit is None
