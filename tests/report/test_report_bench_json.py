"""The bench schema: round trip, every field present, goals judged by their side, no silent null."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.report.bench_json import BenchReport, Result, compared, from_json, to_json

FIELDS = [
    "metric",
    "claim",
    "unit",
    "ours",
    "baseline",
    "baseline_name",
    "ratio",
    "bound",
    "goal",
    "met",
    "exact",
]


def _result(**changes: Any) -> Result:
    return Result(**{"metric": "m", "claim": "c", "unit": "s", "ours": 1.0, **changes})


def test_every_field_is_present_and_reads_back() -> None:
    report = BenchReport(
        name="prefix",
        env={"cpu": "x", "cores": 2, "flags": ["avx2"]},
        commit=None,
        params={"quick": True, "rows": {"n": 3}},
        results=[
            _result(),
            _result(baseline=2.0, baseline_name="lru", ratio=0.5, goal=2, met=True, exact=True),
        ],
    )
    text = to_json(report)
    document = json.loads(text)
    assert list(document) == ["name", "env", "commit", "params", "results"]
    assert [list(result) for result in document["results"]] == [FIELDS, FIELDS]
    assert document["results"][0]["goal"] is None
    assert from_json(text) == report


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_goals_are_judged_by_their_side(ours: float, goal: float) -> None:
    lower = compared("m", "c", "s", ours, better="lower", goal=goal)
    higher = compared("m", "c", "s", ours, better="higher", goal=goal)
    assert lower.met == (ours <= goal) and higher.met == (ours >= goal)


def test_ratio_and_missing_values() -> None:
    result = compared("m", "c", "s", 3.0, better="lower", baseline=2.0, baseline_name="lru", exact=True)
    assert (result.ratio, result.met) == (1.5, None)
    assert compared("m", "c", "s", 3.0, better="lower", baseline=0.0, baseline_name="lru").ratio is None
    missing = compared("m", "c", "s", None, better="lower", baseline=2.0, baseline_name="lru", goal=1.0)
    assert (missing.ratio, missing.met) == (None, False)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ours": float("nan")}, "m.ours is nan"),
        ({"bound": float("inf")}, "m.bound is inf"),
        ({"baseline": 1.0}, "baseline_name"),
        ({"met": True}, "goal"),
    ],
)
def test_dishonest_results_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _result(**changes)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="extra"):
        from_json('{"name": "n", "env": {}, "commit": null, "params": {}, "results": [], "extra": 1}')
