"""What every eviction policy must do, run over all of them."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

import pytest

from belady.policy.registry import Registration, available, load


@dataclass
class Run:
    oid: int
    start: int = 0
    end: int = 4
    last_use: float = 0.0
    next_use: float | None = None
    owners: tuple[str, ...] = ()


policies = pytest.mark.parametrize("registration", available("evict"), ids=lambda r: r.name)


@policies
class TestEvictContract:
    def test_names_only_what_is_evictable(self, registration: Registration) -> None:
        policy, rng = load("evict", registration.name), random.Random(1)
        evictable: dict[int, Run] = {}
        for now in range(2000):
            if rng.random() < 0.6:
                run = Run(
                    rng.randrange(200),
                    last_use=float(now),
                    next_use=rng.choice([None, now + rng.random() * 9]),
                )
                evictable[run.oid] = run
                policy.added(run, float(now))
            elif evictable:
                run = evictable.pop(rng.choice(sorted(evictable)))
                policy.removed(run)
            victim = policy.victim(float(now))
            assert (victim is None) == (not evictable)
            assert victim is None or victim.oid in evictable

    def test_asking_changes_nothing(self, registration: Registration) -> None:
        policy = load("evict", registration.name)
        for oid in range(9):
            policy.added(Run(oid, last_use=float(oid % 4)), 0.0)
        assert len({policy.victim(1.0).oid for _ in range(5)}) == 1

    def test_same_facts_same_victims(self, registration: Registration) -> None:
        orders = []
        for _ in range(2):
            policy = load("evict", registration.name)
            runs = [Run(oid, last_use=float(oid % 3), next_use=float(oid % 5)) for oid in range(30)]
            for run in runs:
                policy.added(run, 1.0)
            order = []
            while (victim := policy.victim(2.0)) is not None:
                policy.removed(victim)
                order.append(victim.oid)
            orders.append(order)
        assert orders[0] == orders[1]
        assert sorted(orders[0]) == list(range(30))

    def test_reads_no_clock_and_no_environment(
        self, registration: Registration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        policy = load("evict", registration.name)

        def forbidden(*_: object, **__: object) -> None:
            raise AssertionError("a policy read a clock or the environment")

        for name in ("time", "monotonic", "perf_counter"):
            monkeypatch.setattr(time, name, forbidden)
        monkeypatch.setattr(os, "getenv", forbidden)
        policy.added(Run(1), 0.0)
        assert policy.victim(1.0).oid == 1
        policy.removed(Run(1))


def test_lru_takes_the_oldest_and_clairvoyant_the_farthest() -> None:
    runs = [Run(1, last_use=1.0, next_use=5.0), Run(2, last_use=2.0, next_use=50.0)]
    victims = {}
    for name in ("lru", "clairvoyant"):
        policy = load("evict", name)
        for run in runs:
            policy.added(run, 3.0)
        victims[name] = policy.victim(3.0).oid
    assert victims == {"lru": 1, "clairvoyant": 2}
