"""Scenario files: strict keys, overrides, sizes taken from model and device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from belady.policy.registry import PolicyError
from belady.sim.assemble import assemble
from belady.sim.catalog import CatalogError
from belady.sim.scenario import ScenarioError, decode, load

EXAMPLES = Path(__file__).parents[2] / "examples"


def raw(**more: Any) -> dict[str, Any]:
    return {
        "name": "t",
        "fleet": {"hardware": "h100", "model": "llama-3.1-8b"},
        "workload": {"source": "synthetic", "synthetic": {"sessions": 2, "turns": 1}},
        **more,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fleeet": {}}, r"fleeet: no such setting; did you mean 'fleet'"),
        ({"core": {"page_sise": 4}}, r"core\.page_sise: no such setting; did you mean 'page_size'"),
        ({"policy": {"evict": {"nam": "lru"}}}, r"policy\.evict\.nam: no such setting; did you mean 'name'"),
        (
            {"workload": {"source": "synthetic", "synthetic": {"turn": 1}}},
            r"workload\.synthetic\.turn: no such setting; did you mean 'turns'",
        ),
        ({"core": {"page_size": "big"}}, r"core\.page_size: Expected `int`"),
        ({"workload": {"source": "tea"}}, r"workload\.source: Invalid enum value 'tea'"),
        ({"workload": {"source": "azure"}}, r"workload: path: the azure source needs a trace file"),
        ({"workload": {"source": "synthetic", "time_scale": 0}}, r"time_scale: must be above 0"),
        ({"fleet": {"hardware": "h100"}}, r"fleet: Object missing required field `model`"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        decode(raw(**change))


def test_overrides_take_toml_values_and_bare_words() -> None:
    scenario = load(
        EXAMPLES / "mooncake.toml",
        ["fleet.replicas=2", "policy.evict.name=clairvoyant", "workload.time_scale = 0.5", 'title="a b"'],
    )
    assert (scenario.fleet.replicas, scenario.policy.evict.name) == (2, "clairvoyant")
    assert (scenario.workload.time_scale, scenario.title) == (0.5, "a b")


@pytest.mark.parametrize("text", ["fleet.replicas", "=3", "a..b=3", "name.x=3"])
def test_a_broken_override_is_an_error(text: str) -> None:
    with pytest.raises(ScenarioError, match="--set"):
        load(EXAMPLES / "mooncake.toml", [text])


def test_a_file_that_is_not_toml_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = ")
    with pytest.raises(ScenarioError, match="not TOML"):
        load(tmp_path / "x.toml")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "y.toml")


def test_the_cache_takes_what_the_weights_leave() -> None:
    assembly = assemble(decode(raw()), Path(), {})
    tokens = assembly.core.groups[0].pages * 16
    assert tokens == pytest.approx((0.9 * 80e9 - 2 * 8_030_261_248) / 131_072, rel=1e-3)
    fixed = assemble(decode(raw(core={"cache_tokens": 32_000})), Path(), {})
    assert fixed.core.groups[0].pages == 2000


def test_window_layers_get_a_pool_of_their_own() -> None:
    fleet = {"hardware": "l4", "model": "gemma3-270m"}
    full, window = assemble(decode(raw(fleet=fleet)), Path(), {}).core.groups
    assert (full.window, window.window) == (None, 512)
    total = 16 * (full.pages * full.bytes_per_token + window.pages * window.bytes_per_token)
    assert total <= 0.9 * 24e9 - 2 * 268_098_176
    assert total == pytest.approx(0.9 * 24e9 - 2 * 268_098_176, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"fleet": {"hardware": "l4", "model": "llama-3.1-70b"}},
            ScenarioError,
            r"141\.1 GB for its weights",
        ),
        ({"fleet": {"hardware": "tpu", "model": "qwen3-8b"}}, CatalogError, "no device is called 'tpu'"),
        ({"core": {"max_running": 9, "step_tokens": 9}}, ScenarioError, r"core\.step_tokens: 9 must exceed"),
        ({"core": {"key_tokens": 4}}, ValueError, r"core\.key_tokens: synthetic prompts are token ids"),
        ({"policy": {"evict": {"name": "lrru"}}}, PolicyError, "did you mean 'lru'"),
        (
            {"policy": {"evict": {"name": "lru", "config": {"size": 1}}}},
            PolicyError,
            r"policy\.evict\.config\.size",
        ),
        (
            {"fleet": {"hardware": "l4", "model": "qwen3-8b", "replicas": 0}},
            ScenarioError,
            r"fleet\.replicas",
        ),
    ],
)
def test_what_cannot_work_says_what_to_change(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        assemble(decode(raw(**change)), Path(), {})
