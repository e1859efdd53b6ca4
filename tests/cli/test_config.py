"""Resolving configuration: strict keys, typed overrides, helpful messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from belady.config import Config, ConfigProblem, load, resolve


def test_defaults():
    assert resolve({}) == Config()
    assert Config().api.host == "127.0.0.1"
    assert Config().policy.evict.name == "lru"


def test_overrides_have_toml_types_and_win():
    config = resolve(
        {"api": {"port": 1, "host": "h"}, "engine": {"max_running": 3}},
        [
            "api.port=0",
            "model.source=/tmp/a b.gguf",
            "cache.prefix=false",
            'api.cors_origins=["a", "b"]',
            "policy.evict.name=clairvoyant",
            "policy.evict.config.depth=4",
            "api.drain_seconds=1.5",
        ],
    )
    assert (config.api.port, config.api.host, config.engine.max_running) == (0, "h", 3)
    assert config.model.source == "/tmp/a b.gguf"
    assert config.cache.prefix is False
    assert config.api.cors_origins == ("a", "b")
    assert (config.policy.evict.name, config.policy.evict.config) == ("clairvoyant", {"depth": 4})
    assert config.api.drain_seconds == 1.5


@pytest.mark.parametrize(
    ("raw", "overrides", "says"),
    [
        ({"apii": {}}, [], "apii: there is no such setting; did you mean api?"),
        ({"api": {"prt": 1}}, [], "api.prt: there is no such setting; did you mean api.port?"),
        ({"policy": {"evict": {"nam": "x"}}}, [], "did you mean policy.evict.name?"),
        ({"api": 3}, [], "api: must be a table"),
        ({"api": {"port": "x"}}, [], "api.port: expected `int`, got `str`"),
        ({}, ["engine.threads=100000"], "engine.threads: expected `int` <= 1024"),
        ({}, ["api.port"], "section.key=value"),
        ({}, ["=3"], "section.key=value"),
        ({"api": {"port": 70000}}, [], "api.port: expected `int` <= 65535"),
        ({}, ["cache.page_size=0"], "cache.page_size: expected `int` >= 1"),
        ({}, ["api.keepalive_seconds=0"], "api.keepalive_seconds: expected `float` > 0"),
        ({"api": {"port": 2}}, ["api.port.x=3"], "api.port is not a table"),
        ({}, ["cache.pagesize=3"], "did you mean cache.page_size?"),
    ],
)
def test_problems_name_the_path(raw, overrides, says):
    with pytest.raises(ConfigProblem) as caught:
        resolve(raw, overrides)
    assert says in str(caught.value)


@pytest.mark.parametrize("key", ["", " ", "a b", "\u00e9"])
def test_a_key_that_no_header_can_carry_is_refused(key):
    with pytest.raises(ConfigProblem, match=r"api\.api_keys"):
        resolve({"api": {"api_keys": ["good", key]}})


def test_resolve_does_not_change_its_input():
    raw = {"api": {"port": 1}}
    resolve(raw, ["api.port=2", "cache.page_size=4"])
    assert raw == {"api": {"port": 1}}


def test_file_then_flags_then_set(tmp_path: Path):
    file = tmp_path / "b.toml"
    file.write_text('[api]\nport = 1\nhost = "f"\ndrain_seconds = 9\n')
    config = load(file, ["api.port=3"], {"api": {"port": 2, "host": "flag"}})
    assert (config.api.port, config.api.host, config.api.drain_seconds) == (3, "flag", 9)


def test_every_engine_setting_is_mapped():
    """A setting that does nothing is worse than none: change each, and look for the change in the engine's config."""
    import dataclasses

    from belady.config.engine import engine_config

    changed = resolve(
        {
            "engine": {"device": "cuda", "dtype": "bfloat16", "threads": 3, "max_context": 77, "max_running": 5,
                       "step_tokens": 99, "max_repeat": 6, "overlap": False},
            "cache": {"bytes": 12345, "page_size": 8, "prefix": False},
            "policy": {"evict": {"name": "e", "config": {"a": 1}}, "schedule": {"name": "s", "config": {"b": 2}}},
        }
    )  # fmt: skip
    for section in (changed.engine, changed.cache):
        for field in dataclasses.fields(section):
            assert getattr(section, field.name) != getattr(type(section)(), field.name), field.name
    default, mapped = engine_config(Config()), engine_config(changed)
    for field in dataclasses.fields(mapped):
        assert getattr(mapped, field.name) != getattr(default, field.name), field.name


def test_defaults_are_the_engines_own():
    from belady.config.engine import engine_config
    from belady.engine.sizes import EngineConfig

    assert engine_config(Config()) == EngineConfig()


def test_unreadable_files(tmp_path: Path):
    with pytest.raises(ConfigProblem, match="cannot read"):
        load(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[api\n")
    with pytest.raises(ConfigProblem, match="not valid TOML"):
        load(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigProblem, match="not valid TOML"):
        load(bad)


def test_a_setting_of_few_values_lists_them():
    with pytest.raises(ConfigProblem, match=r"engine.dtype: .*'int4' \(one of float32, bfloat16, float16\)"):
        resolve({}, ["engine.dtype=int4"])
