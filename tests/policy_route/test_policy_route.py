"""Route policies on scripted fleets."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.core.request import Request
from belady.policy.registry import PolicyError, available, load

REQUEST = Request(rid=1, prompt=b"", prompt_tokens=1000, max_tokens=1)


@dataclass
class Replica:
    pending_tokens: int = 0
    requests: int = 0
    matched: int = 0
    probes: list[int] = field(default_factory=list)

    def probe(self, request: Request) -> int:
        self.probes.append(request.rid)
        return self.matched


def test_round_robin_visits_all_in_turn() -> None:
    router = load("route", "round_robin")
    fleet = [Replica() for _ in range(3)]
    assert [router.route(REQUEST, fleet, 0.0) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert router.route(REQUEST, fleet[:1], 0.0) == 0, "a fleet that shrank is still served"


def test_least_tokens_counts_tokens_not_requests() -> None:
    router = load("route", "least_tokens")
    assert router.route(REQUEST, [Replica(5000, 1), Replica(200, 9)], 0.0) == 1
    assert router.route(REQUEST, [Replica(200, 2), Replica(200, 1)], 0.0) == 1
    assert router.route(REQUEST, [Replica(), Replica()], 0.0) == 0


def test_affinity_follows_the_match_until_the_queue_outweighs_it() -> None:
    router = load("route", "prefix_affinity")
    assert router.route(REQUEST, [Replica(), Replica(pending_tokens=799, matched=800)], 0.0) == 1
    assert router.route(REQUEST, [Replica(), Replica(pending_tokens=801, matched=800)], 0.0) == 0


def test_affinity_without_load_weight_ignores_queues() -> None:
    router = load("route", "prefix_affinity", {"load_weight": 0.0})
    assert router.route(REQUEST, [Replica(), Replica(pending_tokens=10**9, matched=1)], 0.0) == 1


def test_settings_are_strict() -> None:
    with pytest.raises(PolicyError, match=r"policy\.route\.config\.load_wieght.*load_weight"):
        load("route", "prefix_affinity", {"load_wieght": 1.0})
    with pytest.raises(PolicyError, match="0 or more"):
        load("route", "prefix_affinity", {"load_weight": -1.0})


@pytest.mark.parametrize("name", [r.name for r in available("route")])
@given(
    st.lists(
        st.builds(Replica, st.integers(0, 10**6), st.integers(0, 99), st.integers(0, 1000)),
        min_size=1,
        max_size=9,
    )
)
def test_every_policy_names_a_replica_and_repeats_itself(name: str, fleet: list[Replica]) -> None:
    first = [load("route", name).route(REQUEST, fleet, 0.0) for _ in range(2)]
    assert first[0] == first[1]
    assert 0 <= first[0] < len(fleet)
