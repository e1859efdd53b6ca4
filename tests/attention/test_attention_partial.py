"""Partial attention states: any partition, merged in any order, is dense attention."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.attention.partial import (
    attend,
    from_output,
    identity,
    log_sum_exp,
    merge,
    merge_all,
    output,
)

D = 8


def _inputs(seed: int, queries: int, tokens: int, spread: float = 1.0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((2, n, D)).astype(np.float32) for n in (queries, tokens, tokens))
    return q * spread, k, v


def _dense(q, k, v, scale, mask=None):
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ v.astype(np.float64)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    tokens=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    order=st.randoms(use_true_random=False),
    kind=st.sampled_from(["numpy", "torch"]),
)
def test_any_partition_in_any_order_is_dense_attention(seed, tokens, cuts, order, kind) -> None:
    q, k, v = _inputs(seed, 3, tokens)
    expected = _dense(q, k, v, 0.3)
    if kind == "torch":
        q, k, v = (torch.from_numpy(x) for x in (q, k, v))
    bounds = sorted([0, tokens, *(min(c, tokens) for c in cuts)])  # equal bounds give empty parts
    parts = [attend(q, k[:, a:b], v[:, a:b], 0.3) for a, b in itertools.pairwise(bounds)]
    order.shuffle(parts)
    np.testing.assert_allclose(np.asarray(output(merge_all(parts))), expected, atol=2e-6)


def test_merging_is_associative_and_commutative() -> None:
    q, k, v = _inputs(1, 4, 30)
    a, b, c = (attend(q, k[:, s], v[:, s], 0.3) for s in (slice(0, 7), slice(7, 8), slice(8, 30)))
    left, right = merge(merge(a, b), c), merge(a, merge(c, b))
    np.testing.assert_allclose(output(left), output(right), atol=1e-6)
    np.testing.assert_allclose(log_sum_exp(left), log_sum_exp(right), atol=1e-6)


def test_the_identity_changes_nothing() -> None:
    q, k, v = _inputs(2, 4, 9)
    state, nothing = attend(q, k, v, 0.3), identity((2, 4), D, q)
    for merged in (merge(state, nothing), merge(nothing, state)):
        np.testing.assert_array_equal(merged.top, state.top)
        np.testing.assert_array_equal(merged.total, state.total)
        np.testing.assert_array_equal(merged.mixed, state.mixed)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_query_that_sees_nothing_gets_zeros_not_nan(kind: str) -> None:
    q, k, v = _inputs(3, 2, 5)
    mask = np.array([[True, False, True, False, False], [False] * 5])
    expected = _dense(q[:, :1], k, v, 0.3, mask[:1])
    if kind == "torch":
        q, k, v, mask = (torch.from_numpy(x) for x in (q, k, v, mask))
    state = attend(q, k, v, 0.3, mask)
    both_empty = merge(state, attend(q, k[:, :0], v[:, :0], 0.3))
    for result in (state, both_empty):
        attention = np.asarray(output(result))
        np.testing.assert_allclose(attention[:, :1], expected, atol=2e-6)
        assert (attention[:, 1] == 0).all()
        assert (np.asarray(log_sum_exp(result))[:, 1] == -np.inf).all()


def test_far_apart_scores_neither_overflow_nor_vanish() -> None:
    q, k, v = _inputs(4, 3, 20, spread=1000.0)
    parts = [attend(q, k[:, s : s + 4], v[:, s : s + 4], 1.0) for s in range(0, 20, 4)]
    result = output(merge_all(parts))
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result, _dense(q, k, v, 1.0), atol=1e-3)


def test_normalised_results_merge_like_states() -> None:
    q, k, v = _inputs(5, 3, 12)
    a, b = attend(q, k[:, :5], v[:, :5], 0.3), attend(q, k[:, 5:], v[:, 5:], 0.3)
    handed_over = [from_output(output(s), log_sum_exp(s)) for s in (a, b, identity((2, 3), D, q))]
    merged = merge_all(handed_over)
    np.testing.assert_allclose(output(merged), _dense(q, k, v, 0.3), atol=2e-6)
    np.testing.assert_allclose(log_sum_exp(merged), log_sum_exp(merge(a, b)), atol=1e-6)


def test_half_precision_inputs_give_single_precision_states() -> None:
    q, k, v = _inputs(6, 3, 12)
    state = attend(*(torch.from_numpy(x).bfloat16() for x in (q, k, v)), 0.3)
    assert state.top.dtype == state.total.dtype == state.mixed.dtype == torch.float32
