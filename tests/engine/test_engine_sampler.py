"""Sampling: each option against a plain definition of it, and independence of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.core.client import Sampling
from belady.engine.sampler import RowParams, Sampler, choose, mix, top_ids, uniform

VOCAB = 300
NOTHING = np.empty(0, np.int32)


def logits(seed: int, rows: int = 1, spread: float = 2.0) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((rows, VOCAB)) * spread).astype(np.float32)


def params(seed: int = 0, stop_ids: tuple[int, ...] = (), **fields: Any) -> RowParams:
    return RowParams(sampling=Sampling(**{"max_tokens": 8} | fields), seed=seed, stop_ids=stop_ids)


def draw(
    row: npt.NDArray[np.float32],
    given_params: RowParams,
    *,
    prompt: Any = NOTHING,
    output: Any = NOTHING,
    at: int = 0,
) -> Any:
    sampler = Sampler(VOCAB, 2)
    sampler.admit(1, given_params, np.asarray(prompt, np.int32), np.asarray(output, np.int32))
    return sampler.sample(row[None], np.array([1]), np.array([at], np.int32))


def expected_support(row: npt.NDArray[np.float32], s: Sampling) -> set[int]:
    """Which ids may be drawn, by the definitions, with full sorts and double precision."""
    order = np.argsort(-row, kind="stable")
    p = np.exp((row[order] - row.max()).astype(np.float64) / s.temperature)
    if s.top_k is not None:
        order, p = order[: s.top_k], p[: s.top_k]
    p /= p.sum()
    if s.top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(p), s.top_p)) + 1
        order, p = order[:keep], p[:keep]
    kept = p >= s.min_p * p.max() * (1 - 1e-5)
    return set(order[kept].tolist())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.2, 3.0),
    st.none() | st.integers(1, VOCAB + 10),
    st.sampled_from([0.1, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
def test_only_allowed_ids_and_all_of_the_likely_ones(
    seed: int, heat: float, k: int | None, top_p: float, min_p: float
) -> None:
    row = logits(seed)[0]
    sampling = Sampling(max_tokens=1, temperature=heat, top_k=k, top_p=top_p, min_p=min_p)
    support = expected_support(row, sampling)
    steps = 400
    drawn = {choose(row, sampling, (i + 0.5) / steps) for i in range(steps)}
    assert drawn <= support
    p = np.exp((row - row.max()).astype(np.float64) / heat)
    share = p / p[list(support)].sum()
    assert {i for i in support if share[i] > 2 / steps} <= drawn


def test_frequencies_follow_the_distribution() -> None:
    row = logits(3, spread=1.0)[0, :20].copy()
    p = np.exp(row.astype(np.float64) / 0.7)
    p /= p.sum()
    for sampling in (
        Sampling(max_tokens=1, temperature=0.7),
        Sampling(max_tokens=1, temperature=0.7, top_k=19),
        Sampling(max_tokens=1, temperature=0.7, top_p=0.9999),
    ):
        drawn = np.bincount([choose(row, sampling, uniform(9, i)) for i in range(6000)], minlength=20)
        assert np.abs(drawn / 6000 - p).max() < 0.02


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.integers(0, 1000), st.integers(1, 5000), st.booleans())
def test_top_ids(k: int, seed: int, vocab: int, ties: bool) -> None:
    row = np.random.default_rng(seed).standard_normal(vocab).astype(np.float32)
    if ties:
        row = np.round(row)
    assert top_ids(row, k).tolist() == np.argsort(-row, kind="stable")[:k].tolist()


def test_same_draw_in_any_batch() -> None:
    rows = logits(5, rows=6)
    kinds = [
        params(seed=1, temperature=1.0),
        params(seed=1, temperature=1.0, top_k=20),
        params(seed=2, temperature=0.0),
        params(seed=3, temperature=1.0, top_p=0.8, logprobs=2),
        params(seed=4, temperature=1.0, min_p=0.1, logit_bias={3: 2.0}),
        params(seed=5, temperature=1.0, repetition_penalty=1.3),
    ]
    sampler = Sampler(VOCAB, 6)
    for slot, kind in enumerate(kinds):
        sampler.admit(slot, kind, np.array([7], np.int32), NOTHING)
    order = np.array([3, 0, 5, 1, 4, 2])
    together = sampler.sample(rows[order], order, np.full(6, 2, np.int32))
    for at, slot in enumerate(order.tolist()):
        assert draw(rows[slot], kinds[slot], prompt=[7], at=2).tokens[0] == together.tokens[at]


def test_uniform_is_spread_and_repeatable() -> None:
    values = [uniform(seed, position) for seed in range(50) for position in range(50)]
    assert len(set(values)) == 2500 and all(0.0 <= v < 1.0 for v in values)
    assert abs(np.mean(values) - 0.5) < 0.02
    assert uniform(-3, 4) == uniform(-3, 4)
    assert mix(1) != mix(2)


def test_greedy_options() -> None:
    row = logits(1)[0]
    first, second = top_ids(row, 2).tolist()
    greedy: dict[str, Any] = {"temperature": 0.0}
    assert draw(row, params(**greedy)).tokens[0] == first
    assert draw(row, params(**greedy, logit_bias={first: -100.0})).tokens[0] == second
    assert draw(row, params(**greedy, repetition_penalty=50.0), prompt=[first]).tokens[0] == second
    assert draw(row, params(**greedy, repetition_penalty=50.0), output=[first]).tokens[0] == second
    assert draw(row, params(**greedy, presence_penalty=100.0), output=[first]).tokens[0] == second
    assert draw(row, params(**greedy, presence_penalty=100.0), prompt=[first]).tokens[0] == first
    gap = float(row[first] - row[second])
    assert draw(row, params(**greedy, frequency_penalty=gap * 0.4), output=[first] * 2).tokens[0] == first
    assert draw(row, params(**greedy, frequency_penalty=gap * 0.4), output=[first] * 3).tokens[0] == second


def test_repetition_penalty_lowers_negative_logits_too() -> None:
    row = np.full(VOCAB, -5.0, np.float32)
    row[[3, 4]] = [-1.0, -1.5]
    assert draw(row, params(temperature=0.0, repetition_penalty=2.0), prompt=[3]).tokens[0] == 4


def test_penalties_count_what_is_drawn() -> None:
    row = logits(1)[0]
    sampler = Sampler(VOCAB, 1)
    sampler.admit(0, params(temperature=0.0, presence_penalty=100.0), NOTHING, NOTHING)
    drawn = [
        int(sampler.sample(row[None].copy(), np.array([0]), np.array([i], np.int32)).tokens[0])
        for i in range(5)
    ]
    assert drawn == top_ids(row, 5).tolist()


def test_min_tokens_holds_stops_back() -> None:
    row = logits(1)[0]
    first, second, third = top_ids(row, 3).tolist()
    some = params(temperature=0.0, min_tokens=2, stop_ids=(first, second))
    early, late = draw(row, some, at=1), draw(row, some, at=2)
    assert early.tokens[0] == third and not early.stopped[0]
    assert late.tokens[0] == first and late.stopped[0]


def test_tiny_temperature_is_greedy() -> None:
    row = logits(8)[0]
    for heat in (1e-3, 1e-20, 1e-300):
        assert draw(row, params(temperature=heat, seed=3)).tokens[0] == row.argmax()


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {"temperature": 1.0}, {"logprobs": 3}], ids=str)
def test_a_broken_row_fails_alone(bad: float, fields: dict[str, Any]) -> None:
    rows = logits(2, rows=3)
    rows[1, 17] = bad
    sampler = Sampler(VOCAB, 3)
    for slot in range(3):
        sampler.admit(slot, params(**fields), NOTHING, NOTHING)
    drawn = sampler.sample(rows, np.arange(3), np.zeros(3, np.int32))
    assert drawn.failed.tolist() == [False, True, False]


def test_all_logits_minus_infinity_fail() -> None:
    rows = np.full((1, VOCAB), -np.inf, np.float32)
    assert draw(rows[0], params(temperature=0.0)).failed[0]


def test_logprobs_are_of_the_raw_distribution() -> None:
    row = logits(4)[0]
    wanted = params(temperature=0.5, logprobs=3, logit_bias={5: 100.0})
    got = draw(row, wanted)
    exact = row - np.log(np.exp(row.astype(np.float64)).sum())
    (scored,) = got.logprobs.values()
    assert got.tokens[0] == 5 and scored.logprob == pytest.approx(exact[5], abs=1e-4)
    assert list(scored.top_ids) == top_ids(row, 3).tolist()
    assert scored.top_logprobs == pytest.approx(exact[list(scored.top_ids)].tolist(), abs=1e-4)


def test_slots_grow_and_are_forgotten() -> None:
    row = logits(6)
    sampler = Sampler(VOCAB, 1)
    sampler.reserve(4)
    top = int(row[0].argmax())
    sampler.admit(
        3, params(temperature=0.0, stop_ids=(1, 2, top), logit_bias={top: -100.0}), NOTHING, NOTHING
    )
    assert sampler.sample(row, np.array([3]), np.zeros(1, np.int32)).tokens[0] != top
    sampler.release(3)
    after = sampler.sample(row, np.array([3]), np.zeros(1, np.int32))
    assert after.tokens[0] == top and not after.stopped[0]
