"""Cost, budget, forecasts and configuration: plain arithmetic."""

from __future__ import annotations

import pytest

from belady.core.budget import MIN_CHUNK, StepBudget
from belady.core.config import ConfigError, CoreConfig, GroupConfig
from belady.core.cost import Roofline, StepBatch
from belady.core.crowd import Crowd
from belady.core.forecast import NEVER, Forecast

ROOF = Roofline(
    flops=1e12,
    bandwidth=1e11,
    weight_bytes=1e9,
    flops_per_token=2e9,
    attention_flops_per_pair=1e5,
    kv_bytes_per_token=1e5,
    step_overhead=1e-3,
)


def test_roofline_is_bound_by_memory_then_by_arithmetic() -> None:
    one = ROOF.seconds(StepBatch(1, 100))
    assert one == pytest.approx((1e9 + 1e7) / 1e11 + 1e-3)
    many = ROOF.seconds(StepBatch(0, 0, [(1000, 0)]))
    assert many == pytest.approx((2e12 + 1e5 * 1000 * 500.5) / 1e12 + 1e-3)


def test_decode_run_equals_iterations_one_by_one() -> None:
    run = ROOF.decode_run(3, 300, 5)
    assert run == [ROOF.seconds(StepBatch(3, 300 + 3 * i)) for i in range(5)]


def config(**more: object) -> CoreConfig:
    return CoreConfig(groups=(GroupConfig(name="full", pages=8),), **more)  # type: ignore[arg-type]


def test_budget_cuts_chunks_to_tokens() -> None:
    budget = StepBudget(config(step_tokens=100, max_running=10), None, 10, 0)
    assert budget.chunk(60, 0) == 60
    budget.spend(60, 0)
    assert budget.chunk(60, 0) == 30
    budget.spend(30, 0)
    assert not budget.open


def test_budget_cuts_chunks_to_time_but_always_progresses() -> None:
    tight = StepBudget(config(step_seconds=0.2), ROOF, 0, 0)
    count = tight.chunk(2000, 0)
    assert (
        ROOF.seconds(StepBatch(0, 0, [(count, 0)])) <= 0.2 < ROOF.seconds(StepBatch(0, 0, [(count + 1, 0)]))
    )
    assert StepBudget(config(step_seconds=1e-6), ROOF, 0, 0).chunk(2000, 0) == MIN_CHUNK


def test_forecast_ages_into_unknown() -> None:
    f = Forecast("p", 10.0, 30.0, 0.9, "tool", issued_at=100.0)
    assert f.residual(104.0) == 6.0
    assert f.residual(120.0) == 0.0
    assert f.residual(131.0) is None
    assert Forecast("p", NEVER, NEVER, 1.0, "close", 0.0).residual(1e9) == NEVER


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"page_size": 0}, "page_size"),
        ({"key_tokens": 3}, "key_tokens"),
        ({"step_tokens": 64}, "step_tokens"),
        ({"max_repeat": 0}, "max_repeat"),
        ({"groups": ()}, "groups"),
        ({"groups": (GroupConfig(name="w", pages=9, window=4),)}, "groups"),
        (
            {"groups": (GroupConfig(name="f", pages=9), GroupConfig(name="w", pages=3, window=64))},
            "groups[1].pages",
        ),
    ],
)
def test_impossible_sizes_are_named(more: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        CoreConfig(**{"groups": (GroupConfig(name="full", pages=8),), **more})  # type: ignore[arg-type]
    assert str(error.value).startswith(field)


def test_crowd_limits_after_a_preemption_and_grows_by_rounds() -> None:
    crowd = Crowd()
    assert crowd.limit(64) == 64
    crowd.outgrown(3)
    assert crowd.limit(64) == 3
    for _ in range(3):
        crowd.ended(2)
    assert crowd.limit(64) == 4
    crowd.ended(0)
    assert crowd.limit(64) == 64
    crowd.outgrown(0)
    assert crowd.limit(64) == 1
