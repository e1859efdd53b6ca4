"""Scenario files: strict keys, overrides, sizes taken from model and device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from belady.policy.registry import PolicyError
from belady.sim.assemble import assemble
from belady.sim.ranges import allowed
from belady.sim.scenario import Scenario, ScenarioError, decode, load

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
        (
            {"workload": {"source": "tea"}},
            r"^workload\.source: 'tea' is not allowed; it must be one of mooncake, azure, weka, synthetic$",
        ),
        ({"workload": {"source": "azure"}}, r"^workload\.path: the azure source needs a trace file"),
        ({"core": {"page_size": True}}, r"^core\.page_size: Expected `int`, got `bool` \(1 to 10,000,000\)"),
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
        (
            {"fleet": {"hardware": "tpu", "model": "qwen3-8b"}},
            ScenarioError,
            "^fleet.hardware: no device is called 'tpu'",
        ),
        (
            {"fleet": {"hardware": "l4", "model": "gpt"}},
            ScenarioError,
            "^fleet.model: no model is called 'gpt'",
        ),
        (
            {"fleet": {"hardware": "a100", "model": "qwen3-8b", "dtype": "float8"}},
            ScenarioError,
            "^fleet.dtype: a100 has no rate for 'float8'",
        ),
        ({"core": {"cache_tokens": 10}}, ScenarioError, r"^core\.cache_tokens: 10 is less than the 2 pages"),
        (
            {"fleet": {"hardware": "l4", "model": "gemma3-270m"}, "core": {"cache_tokens": 64}},
            ScenarioError,
            r"^core\.cache_tokens: 64 is less than the 34 pages",
        ),
        (
            {"core": {"cache_tokens": 1_000_000_000, "page_size": 1}},
            ScenarioError,
            r"^core\.page_size: 1 x 1,000,000,000 tokens",
        ),
        (
            {"policy": {"evict": {"name": "mypol:Mru"}}},
            PolicyError,
            r"^policy\.evict\.name: cannot load 'mypol:Mru'",
        ),
        ({"core": {"max_running": 9, "step_tokens": 9}}, ScenarioError, r"core\.step_tokens: 9 must exceed"),
        ({"core": {"key_tokens": 4}}, ValueError, r"core\.key_tokens: synthetic prompts are token ids"),
        ({"policy": {"evict": {"name": "lrru"}}}, PolicyError, r"^policy\.evict\.name: .*did you mean 'lru'"),
        (
            {"policy": {"evict": {"name": "lru", "config": {"size": 1}}}},
            PolicyError,
            r"^policy\.evict\.config\.size",
        ),
        (
            {"policy": {"route": {"name": "prefix_affinity", "config": {"load_weight": -1}}}},
            PolicyError,
            r"^policy\.route\.config: load_weight",
        ),
    ],
)
def test_what_cannot_work_says_what_to_change(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        assemble(decode(raw(**change)), Path(), {})


def _numbers(cls: type, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every numeric setting of a section and those below it, with its annotated type."""
    for key, hint in get_type_hints(cls, include_extras=True).items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for option in options:
            plain = getattr(option, "__origin__", option)
            if isinstance(plain, type) and is_dataclass(plain):
                yield from _numbers(plain, f"{path}{key}.")
            elif plain in (int, float):
                yield f"{path}{key}", option


NUMBERS = {path: hint for path, hint in _numbers(Scenario) if path != "seed"}


def _set(path: str, value: object) -> dict[str, Any]:
    data: dict[str, Any] = raw()
    *sections, key = path.split(".")
    node = data
    for section in sections:
        node = node.setdefault(section, {})
    node[key] = value
    return data


def test_the_settings_walked_are_all_sections() -> None:
    assert {path.rpartition(".")[0] for path in NUMBERS} == {
        "fleet",
        "core",
        "cost",
        "workload",
        "workload.synthetic",
    }
    assert len(NUMBERS) > 25


@pytest.mark.parametrize("path", sorted(NUMBERS))
def test_a_number_out_of_range_is_refused_by_path_value_and_range(path: str) -> None:
    (bounds,) = NUMBERS[path].__metadata__
    words = allowed(NUMBERS[path])
    assert words is not None
    for value in (-1, bounds.ge - 1, bounds.ge - 1e-7, bounds.le + 1, float("nan"), float("inf"), 10**30):
        if NUMBERS[path].__origin__ is int and isinstance(value, float):
            continue
        with pytest.raises(ScenarioError) as caught:
            decode(_set(path, value))
        assert str(caught.value) == f"{path}: {value!r} is not allowed; it must be {words}"
    for value in (bounds.ge, bounds.le):
        decode(_set(path, value))


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/x", "", ".", "..", ".hidden", "a/b", "a\n", "a b", "x" * 65]
)
def test_a_name_stays_inside_the_output_folder(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"^name: .* is not allowed; it must be 1 to 64 letters"):
        decode(raw(name=name))
    assert decode(raw(name="run-2.b_3")).name == "run-2.b_3"


def test_clairvoyant_is_called_the_ceiling_of_one_replica_only() -> None:
    notes = {}
    for replicas in (1, 3):
        overrides = ["policy.evict.name=clairvoyant", f"fleet.replicas={replicas}", "workload.limit=9"]
        notes[replicas] = assemble(load(EXAMPLES / "mooncake.toml", overrides), EXAMPLES, {}).notes
    assert not any("clairvoyant" in note for note in notes[1])
    assert sum("any of the 3 replicas" in note for note in notes[3]) == 1
