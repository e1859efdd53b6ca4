"""Model descriptions against the parameter counts that their publishers state."""

from __future__ import annotations

import pytest

from belady.sim.catalog import CatalogError
from belady.sim.model import model, models

PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "gemma3-270m": 268_098_176,
    "qwen3-0.6b": 596_049_920,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "llama-3.1-8b": 8_030_261_248,
    "qwen3-32b": 32_762_123_264,
    "llama-3.1-70b": 70_553_706_496,
}


@pytest.mark.parametrize("name", list(models()))
def test_parameters_equal_the_published_count(name: str) -> None:
    assert model(name).parameters == PUBLISHED[name]


def test_kv_bytes_per_token() -> None:
    llama = model("llama-3.1-8b")
    assert llama.kv_bytes_per_token(llama.groups[0], "bfloat16") == 2 * 32 * 8 * 128 * 2
    gemma = model("gemma3-270m")
    assert [(g.layers, g.window) for g in gemma.groups] == [(3, None), (15, 512)]


def test_an_untied_input_embedding_is_looked_up_not_multiplied() -> None:
    llama, smol = model("llama-3.1-8b"), model("smollm2-135m")
    assert llama.parameters - llama.active_parameters == 128_256 * 4096
    assert smol.parameters == smol.active_parameters


def test_an_unknown_model_names_the_near_and_the_known() -> None:
    with pytest.raises(CatalogError, match=r"did you mean 'llama-3\.1-8b'.*Known: smollm2-135m"):
        model("llama-3-8b")
