"""The roofline against the core's own arithmetic and against counting pairs one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.core.cost import StepBatch
from belady.sim.cost import CostConfig, GroupRoofline, _window_pairs, roofline
from belady.sim.hardware import devices, hardware
from belady.sim.model import model, models

BATCHES = st.builds(
    StepBatch,
    decodes=st.integers(0, 300),
    decode_context=st.integers(0, 10**6),
    prefill=st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 10**5)), max_size=3),
)
CONFIGS = st.builds(
    CostConfig,
    overlap=st.floats(0, 1),
    step_overhead=st.floats(0, 0.01),
    row_overhead=st.floats(0, 1e-4),
)


@given(BATCHES, CONFIGS)
def test_without_windows_it_is_the_cores_roofline(batch: StepBatch, config: CostConfig) -> None:
    cost = roofline(hardware("h100"), model("llama-3.1-8b"), config)
    assert isinstance(cost, GroupRoofline) and not cost.windows
    assert cost.seconds(batch) == pytest.approx(cost.base.seconds(batch), rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma3-270m"])
@given(
    decodes=st.integers(1, 300),
    extra=st.integers(0, 10**6),
    iterations=st.integers(1, 80),
    config=CONFIGS,
    device=st.sampled_from(["h100", "this-cpu"]),
)
def test_a_run_of_decodes_is_its_iterations_one_by_one(
    name: str, decodes: int, extra: int, iterations: int, config: CostConfig, device: str
) -> None:
    cost = roofline(devices()[device], model(name), config)
    context = decodes + extra
    single = [cost.seconds(StepBatch(decodes, context + i * decodes)) for i in range(iterations)]
    assert list(cost.decode_run(decodes, context, iterations)) == pytest.approx(single, rel=1e-12)


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 40))
def test_window_pairs_count_what_each_token_sees(chunk: int, done: int, window: int) -> None:
    assert _window_pairs(chunk, done, window) == sum(min(done + j + 1, window) for j in range(chunk))


def test_windows_make_long_contexts_cheaper() -> None:
    gemma = roofline(hardware("h100"), model("gemma3-270m"), CostConfig())
    assert isinstance(gemma, GroupRoofline) and len(gemma.windows) == 1
    batch = StepBatch(1, 30_000)
    layers_full = gemma.base.kv_bytes_per_token * 6 * 30_000
    full = (gemma.base.weight_bytes + layers_full) / gemma.base.bandwidth
    assert gemma.seconds(batch) < 0.7 * full


def test_devices_in_parallel_divide_the_time() -> None:
    one = roofline(hardware("h100"), model("llama-3.1-70b"), CostConfig(), count=1)
    four = roofline(hardware("h100"), model("llama-3.1-70b"), CostConfig(), count=4)
    batch = StepBatch(8, 8000, [(512, 0)])
    assert four.seconds(batch) == pytest.approx(one.seconds(batch) / 4)


def test_a_decode_of_one_row_takes_the_time_to_read_the_weights() -> None:
    for network in models().values():
        cost = roofline(hardware("h100"), network, CostConfig())
        floor = 2 * network.active_parameters / (0.8 * 3.35e12)
        assert floor < cost.seconds(StepBatch(1, 1)) < 1.001 * floor
