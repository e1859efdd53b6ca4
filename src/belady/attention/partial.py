"""Attention over a part of the keys as a state that merges: the running maximum, sum and weighted values of a softmax.

States over disjoint sets of tokens merge in any order and any grouping to the attention over their union, which is what
lets one query be answered piecewise: by pages, by shared prefixes, by splits of a long context, by other machines.
After "Online normalizer calculation for softmax" (2018) and "FlashAttention: Fast and Memory-Efficient Exact Attention
with IO-Awareness" (2022).

Works on numpy arrays and on torch tensors alike. That sets are disjoint is the caller's duty; which tokens belong to
which set is not known here. The order of merging changes the last bits of a result, never more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
"""A numpy array or a torch tensor; all arguments of one call are of one kind."""


@dataclass(frozen=True, slots=True)
class Partial:
    """State of any number of queries, float32. With scores s_i = scale * q.k_i over the tokens i seen so far:"""

    top: Array
    """[...] maximum of s_i; -inf where no token was seen."""
    total: Array
    """[...] sum of exp(s_i - top)."""
    mixed: Array
    """[..., d] sum of exp(s_i - top) * v_i: not divided by `total`."""


def identity(shape: tuple[int, ...], d: int, like: Array) -> Partial:
    """The state of `shape` queries that have seen nothing, of the kind (and on the device) of `like`."""
    xp = _namespace(like)
    extra = {} if xp is np else {"device": like.device}
    return Partial(
        xp.full(shape, -np.inf, dtype=xp.float32, **extra),
        xp.zeros(shape, dtype=xp.float32, **extra),
        xp.zeros((*shape, d), dtype=xp.float32, **extra),
    )


def attend(q: Array, k: Array, v: Array, scale: float, mask: Array | None = None) -> Partial:
    """The state of queries q [..., n, d] over the tokens of k, v [..., t, d].

    `mask` [..., n, t] is true where a query sees a token; None: everywhere. A query that sees none gets the identity.
    """
    xp = _namespace(q)
    if k.shape[-2] == 0:
        return identity(tuple(q.shape[:-1]), v.shape[-1], q)
    scores = _single(q) @ _single(k).swapaxes(-1, -2) * scale
    if mask is not None:
        scores = xp.where(mask, scores, xp.full_like(scores, -np.inf))
    top = xp.amax(scores, -1)
    weights = xp.exp(scores - _finite(top)[..., None])
    return Partial(top, weights.sum(-1), weights @ _single(v))


def merge(a: Partial, b: Partial) -> Partial:
    """The state over the union of two disjoint sets of tokens."""
    xp = _namespace(a.top)
    top = xp.maximum(a.top, b.top)
    # Where neither has seen a token, top is -inf and -inf - -inf is no number: both factors must be 0.
    reference = _finite(top)
    keep_a, keep_b = xp.exp(a.top - reference), xp.exp(b.top - reference)
    return Partial(
        top,
        keep_a * a.total + keep_b * b.total,
        keep_a[..., None] * a.mixed + keep_b[..., None] * b.mixed,
    )


def merge_all(parts: Iterable[Partial]) -> Partial:
    """Merge from left to right; at least one part."""
    rest = iter(parts)
    state = next(rest)
    for part in rest:
        state = merge(state, part)
    return state


def output(state: Partial) -> Array:
    """The attention, [..., d]; zeros where no token was seen."""
    xp = _namespace(state.top)
    total = xp.where(state.total > 0, state.total, xp.ones_like(state.total))
    return state.mixed / total[..., None]


def log_sum_exp(state: Partial) -> Array:
    """[...] log of the sum of exp(s_i); -inf where no token was seen."""
    xp = _namespace(state.top)
    return state.top + xp.log(xp.where(state.total > 0, state.total, xp.ones_like(state.total)))


def from_output(attention: Array, log_total: Array) -> Partial:
    """The state that has this `output` and `log_sum_exp`: what kernels that normalise hand over."""
    xp = _namespace(log_total)
    seen = log_total > -np.inf
    total = xp.where(seen, xp.ones_like(log_total), xp.zeros_like(log_total))
    return Partial(log_total, total, xp.where(seen[..., None], attention, xp.zeros_like(attention)))


def _finite(top: Array) -> Array:
    """`top` with 0 for -inf, so that it can be subtracted."""
    xp = _namespace(top)
    return xp.where(top > -np.inf, top, xp.zeros_like(top))


def _single(x: Array) -> Array:
    return x.astype(np.float32) if isinstance(x, np.ndarray) else x.float()


def _namespace(x: Array) -> Any:
    """The module whose functions take x: numpy, or torch, which is loaded if x is one of its tensors."""
    return np if isinstance(x, np.ndarray | np.generic) else sys.modules["torch"]
