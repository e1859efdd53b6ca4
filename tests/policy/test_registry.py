from __future__ import annotations

from dataclasses import dataclass

import pytest

from belady.policy.registry import PolicyError, available, load


@dataclass(frozen=True)
class ToyConfig:
    weight: int = 1


class Toy:
    """A policy from outside, found by its dotted path."""

    def __init__(self, config: ToyConfig) -> None:
        self.weight = config.weight


def test_built_in_policies_are_listed_with_a_summary() -> None:
    names = {(r.kind, r.name) for r in available()}
    assert {("evict", "lru"), ("evict", "clairvoyant"), ("schedule", "fcfs")} <= names
    assert all(r.summary for r in available())


def test_dotted_path_and_settings() -> None:
    assert load("evict", f"{__name__}:Toy", {"weight": 3}).weight == 3


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("lrv", {}, "policy.evict.name: .* did you mean 'lru'"),
        ("lru", {"size": 1}, "policy.evict.config.size: Lru has no such setting"),
        (f"{__name__}:Toy", {"wieght": 1}, "did you mean 'weight'"),
        (f"{__name__}:Toy", {"weight": "x"}, "Expected `int`"),
        ("no.such:Thing", {}, "cannot load"),
        (f"{__name__}:ToyMissing", {}, "cannot load"),
        (f"{__name__}:pytest", {}, "is not a class"),
    ],
)
def test_errors_name_the_path(name: str, config: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message) as error:
        load("evict", name, config)
    assert "policy.evict" in str(error.value)


def test_unknown_kind() -> None:
    with pytest.raises(PolicyError, match="kinds are"):
        load("teleport", "lru")


def test_installed_is_not_active(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point is offered by name; listing loads none of its code."""
    from importlib import metadata

    point = metadata.EntryPoint("evict.broken", "no.such.module:Policy", "belady.policies")
    monkeypatch.setattr("belady.policy.registry.entry_points", lambda group: [point])
    assert "broken" in {r.name for r in available("evict")}
    assert type(load("evict", "lru")).__name__ == "Lru"
    with pytest.raises(PolicyError, match="cannot load"):
        load("evict", "broken")
