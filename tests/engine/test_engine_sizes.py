"""Pool sizes follow the budget, for any shape of model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.core.client import EngineError
from belady.engine.sizes import EngineConfig, resolve
from belady.kernels.program import LayerGroup


def group(window: int | None, layers: int = 4) -> LayerGroup:
    return LayerGroup(
        name="w" if window else "full", layers=tuple(range(layers)), window=window, kv_heads=2, head_dim=8
    )


@given(
    st.integers(10_000, 10**9),
    st.sampled_from([1, 16, 64]),
    st.lists(st.integers(8, 5000), min_size=0, max_size=2),
    st.integers(100, 100_000),
    st.integers(65, 4096),
)
def test_as_much_as_fits(budget: int, page: int, windows: list[int], context: int, step: int) -> None:
    config = EngineConfig(page_size=page, cache_bytes=budget, step_tokens=step)
    groups = [group(None), *map(group, windows)]
    page_bytes = [page * 100 * (i + 1) for i in range(len(groups))]
    try:
        core = resolve(config, groups, page_bytes, context)
    except EngineError as error:
        assert error.code == "cache_too_small"
        needed = int(str(error).split("at least ")[1].split()[0])
        assert needed > budget
        resolve(
            EngineConfig(page_size=page, cache_bytes=needed, step_tokens=step), groups, page_bytes, context
        )
        return
    used = sum(g.pages * size for g, size in zip(core.groups, page_bytes, strict=True))
    assert used <= budget
    per_full_page = sum(page_bytes) + page_bytes[0]
    assert budget - used <= per_full_page
    assert core.max_context <= min(context, (core.groups[0].pages - 1) * page)


def test_windows_take_their_share() -> None:
    core = resolve(EngineConfig(cache_bytes=1 << 28), [group(None), group(512)], [16000, 16000], 8192)
    full, window = core.groups
    assert window.window == 512 and window.pages == pytest.approx(full.pages / 8, abs=1)


def test_a_model_of_windows_only_has_a_full_group() -> None:
    core = resolve(EngineConfig(), [group(512)], [16000], 8192)
    assert core.groups[0].window is None


def test_max_context_limits() -> None:
    core = resolve(EngineConfig(max_context=100), [group(None)], [1600], 8192)
    assert core.max_context == 100
    with pytest.raises(EngineError, match=r"max_context is 9000, .* 8192 tokens"):
        resolve(EngineConfig(max_context=9000), [group(None)], [1600], 8192)
