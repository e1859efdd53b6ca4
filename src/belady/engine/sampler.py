"""Choosing tokens from logits, row by row, so that a choice depends on nothing but its own row.

Works on numpy arrays in host memory. Knows neither plans nor text. Order of operations: penalties, logit bias, minimum
length, temperature, top-k, top-p (of what top-k left), min-p, one uniform number through the inverse of the cumulative
distribution. That number comes from a counter-based generator over (seed, output position), after "Fast Splittable
Pseudorandom Number Generators" (2014): the same seed at the same position draws the same token whatever the batch, and
a preempted request goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from belady.core.client import Sampling
from belady.engine.executor import RowLogprobs

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

_MASK = (1 << 64) - 1
_BLOCK = 64
"""Ids per block of the two-level searches over a vocabulary."""
_FIRST_NUCLEUS = 256
"""Candidates tried first for top-p; eight times as many until they hold enough mass."""
NO_ID = -1
"""Padding in the table of stop ids; matches no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParams:
    """What a driver puts into `Request.params` for the executor."""

    sampling: Sampling
    seed: int
    """64 bits; drawn by the driver where the client gave none."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end the output: end-of-sequence ids (unless ignored) and the client's own."""


@dataclass(slots=True)
class _Row:
    """Sampling state of one slot; `counts` and `in_prompt` exist only where a penalty needs them."""

    params: RowParams
    bias_ids: npt.NDArray[np.int64]
    bias: Floats
    masked: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int32] | None
    in_prompt: npt.NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """One entry per row. Where `failed`, the logits were not numbers and `tokens` means nothing."""

    tokens: Ints
    stopped: npt.NDArray[np.bool_]
    failed: npt.NDArray[np.bool_]
    logprobs: Mapping[int, RowLogprobs] = field(default_factory=dict)
    """By row index, where asked for."""


class Sampler:
    """State of `slots` rows over a vocabulary of `vocab` ids; slots grow with `reserve`."""

    def __init__(self, vocab: int, slots: int) -> None:
        self._vocab = vocab
        self._rows: list[_Row | None] = [None] * slots
        self._plain = np.ones(slots, np.bool_)
        """Greedy and nothing else: the largest logit is the answer."""
        self._stops = np.full((slots, 1), NO_ID, np.int32)

    def reserve(self, slots: int) -> None:
        """Make room for at least `slots` rows."""
        more = slots - len(self._rows)
        if more > 0:
            self._rows.extend([None] * more)
            self._plain = np.concatenate([self._plain, np.ones(more, np.bool_)])
            pad = np.full((more, self._stops.shape[1]), NO_ID, np.int32)
            self._stops = np.concatenate([self._stops, pad])

    def admit(self, slot: int, params: RowParams, prompt: Ints, output: Ints) -> None:
        """Start a row; `output` is what it had drawn before a preemption."""
        sampling = params.sampling
        self._set_stops(slot, params.stop_ids)
        self._plain[slot] = _is_plain(sampling)
        if self._plain[slot]:
            self._rows[slot] = None
            return
        counts = in_prompt = None
        if _has_penalty(sampling):
            counts = np.bincount(output, minlength=self._vocab).astype(np.int32)
            in_prompt = np.zeros(self._vocab, np.bool_)
            in_prompt[prompt] = True
        bias = sampling.logit_bias
        self._rows[slot] = _Row(
            params,
            np.fromiter(bias.keys(), np.int64, len(bias)),
            np.fromiter(bias.values(), np.float32, len(bias)),
            np.asarray(params.stop_ids, np.int64),
            counts,
            in_prompt,
        )

    def release(self, slot: int) -> None:
        """Forget a row."""
        self._rows[slot] = None
        self._plain[slot] = True
        self._stops[slot] = NO_ID

    def sample(self, logits: Floats, slots: npt.NDArray[np.intp], generated: Ints) -> Drawn:
        """Draw one token per row of `logits` [rows, vocab]; `generated[r]` tokens were drawn for row r before."""
        tokens = logits.argmax(axis=1)
        # argmax prefers a NaN to any number, so the largest logit tells whether the row is sound.
        best = logits[np.arange(len(tokens)), tokens]
        failed = ~np.isfinite(best)
        logprobs: dict[int, RowLogprobs] = {}
        plain = self._plain[slots]
        if not plain.all():
            for r in np.flatnonzero(~plain & ~failed).tolist():
                row = self._rows[slots[r]]
                assert row is not None, f"slot {slots[r]} was not admitted"
                tokens[r] = self._draw(row, logits[r], int(generated[r]))
                wanted = row.params.sampling.logprobs
                if wanted is not None:
                    logprobs[r] = row_logprobs(logits[r], float(best[r]), int(tokens[r]), wanted)
        drawn = tokens.astype(np.int32)
        stopped = (drawn[:, None] == self._stops[slots]).any(axis=1)
        return Drawn(drawn, stopped, failed, logprobs)

    def _draw(self, row: _Row, logits: Floats, generated: int) -> int:
        sampling = row.params.sampling
        adjusted = _adjust(row, logits, generated)
        if sampling.temperature == 0.0:
            token = int(adjusted.argmax())
        else:
            token = choose(adjusted, sampling, uniform(row.params.seed, generated))
        if row.counts is not None:
            row.counts[token] += 1
        return token

    def _set_stops(self, slot: int, ids: tuple[int, ...]) -> None:
        if len(ids) > self._stops.shape[1]:
            pad = np.full((len(self._rows), len(ids) - self._stops.shape[1]), NO_ID, np.int32)
            self._stops = np.concatenate([self._stops, pad], axis=1)
        self._stops[slot] = NO_ID
        self._stops[slot, : len(ids)] = ids


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on (seed, position) alone."""
    return (mix(mix(seed) + position) >> 11) * 2.0**-53


def mix(value: int) -> int:
    """A bijective scramble of 64 bits (SplitMix64's step)."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def choose(logits: Floats, sampling: Sampling, u: float) -> int:
    """The token that the uniform number `u` selects; `sampling.temperature` must be above 0. No side effect."""
    vocab = len(logits)
    heat, limit = sampling.temperature, sampling.top_k
    top = logits.max()
    if limit is not None and limit < vocab:
        ids = top_ids(logits, limit)
        return _pick(ids, _weights(logits[ids], top, heat), sampling.top_p, sampling.min_p, u)
    if sampling.top_p < 1.0:
        ids, weights, share = _nucleus(logits, top, heat, sampling.top_p)
        return _pick(ids, weights, share, sampling.min_p, u)
    weights = _weights(logits, top, heat)
    if sampling.min_p > 0.0:
        weights[weights < sampling.min_p] = 0.0
    return _search(weights, u)


def top_ids(logits: Floats, k: int) -> npt.NDArray[np.intp]:
    """Ids of the `k` largest logits, largest first, lower ids first among equals. Does not sort the vocabulary."""
    vocab = len(logits)
    if k >= vocab:
        return np.argsort(-logits, kind="stable")
    blocks = vocab // _BLOCK
    if 2 * k <= blocks:
        # Each of the k best blocks has a value of at least the k-th best block's maximum: a bound on the k-th logit.
        peaks = logits[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        bound = np.partition(peaks, blocks - k)[blocks - k]
    else:
        bound = np.partition(logits, vocab - k)[vocab - k]
    ids = np.flatnonzero(logits >= bound)
    return ids[np.argsort(-logits[ids], kind="stable")[:k]]


def row_logprobs(logits: Floats, top: float, token: int, count: int) -> RowLogprobs:
    """Log-probabilities of the distribution that `logits` (largest: `top`) define, before any sampling option."""
    total = top + float(np.log(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))
    ids = top_ids(logits, count) if count else np.empty(0, np.intp)
    return RowLogprobs(
        float(logits[token]) - total,
        tuple(ids.tolist()),
        tuple(float(v) - total for v in logits[ids]),
    )


def _is_plain(s: Sampling) -> bool:
    return (
        s.temperature == 0.0
        and not _has_penalty(s)
        and not s.logit_bias
        and s.logprobs is None
        and not s.min_tokens
    )


def _has_penalty(s: Sampling) -> bool:
    return s.repetition_penalty != 1.0 or s.frequency_penalty != 0.0 or s.presence_penalty != 0.0


def _adjust(row: _Row, logits: Floats, generated: int) -> Floats:
    """Logits after penalties, bias and minimum length: a copy, or `logits` itself where none applies."""
    sampling = row.params.sampling
    short = generated < sampling.min_tokens and len(row.masked) > 0
    if row.counts is None and not len(row.bias) and not short:
        return logits
    out = logits.copy()
    if row.counts is not None:
        assert row.in_prompt is not None
        if sampling.repetition_penalty != 1.0:
            seen = np.flatnonzero(row.in_prompt | (row.counts > 0))
            values = out[seen]
            factor = np.float32(sampling.repetition_penalty)
            out[seen] = np.where(values > 0, values / factor, values * factor)
        drawn = np.flatnonzero(row.counts)
        out[drawn] -= (
            np.float32(sampling.frequency_penalty) * row.counts[drawn] + np.float32(sampling.presence_penalty)
        ).astype(np.float32)
    if len(row.bias):
        out[row.bias_ids] += row.bias
    if short:
        out[row.masked] = -np.inf
    return out


def _weights(logits: Floats, top: np.floating, heat: float) -> Floats:
    """Unnormalised probabilities; the largest is 1."""
    scaled = logits - top
    # Divided, not multiplied by the inverse: that overflows for the smallest temperatures (0 * inf is not a number).
    with np.errstate(over="ignore"):
        scaled /= np.float32(max(heat, 1e-30))
    return np.exp(scaled, out=scaled)


def _nucleus(
    logits: Floats, top: np.floating, heat: float, top_p: float
) -> tuple[npt.NDArray[np.intp], Floats, float]:
    """Enough of the likeliest ids to hold `top_p` of all mass, their weights, and that mass as a share of theirs."""
    wanted = top_p * float(_weights(logits, top, heat).sum(dtype=np.float64))
    size = _FIRST_NUCLEUS
    while True:
        ids = top_ids(logits, size)
        weights = _weights(logits[ids], top, heat)
        mass = float(weights.sum(dtype=np.float64))
        if mass >= wanted or size >= len(logits):
            return ids, weights, min(1.0, wanted / mass)
        size *= 8


def _pick(ids: npt.NDArray[np.intp], weights: Floats, top_p: float, min_p: float, u: float) -> int:
    """Draw among candidates sorted by falling weight, cut to the smallest set that holds `top_p` of their mass."""
    mass = np.cumsum(weights, dtype=np.float64)
    keep = len(ids)
    if top_p < 1.0:
        keep = min(keep, int(np.searchsorted(mass, top_p * mass[-1])) + 1)
    if min_p > 0.0:
        keep = min(keep, int(np.count_nonzero(weights >= min_p)))
    return int(ids[min(int(np.searchsorted(mass[:keep], u * mass[keep - 1], side="right")), keep - 1)])


def _search(weights: Floats, u: float) -> int:
    """Inverse of the cumulative distribution over ids, in two levels: blocks, then ids of one block."""
    starts = np.arange(0, len(weights), _BLOCK)
    blocks = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
    target = min(u * blocks[-1], np.nextafter(blocks[-1], 0.0))
    block = int(np.searchsorted(blocks, target, side="right"))
    before = blocks[block - 1] if block else 0.0
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    # Rounding may put the target behind the block's sum: then the last id that has any weight is meant.
    last = int(np.flatnonzero(inside < inside[-1])[-1]) + 1 if inside[0] < inside[-1] else 0
    return block * _BLOCK + min(int(np.searchsorted(inside, target - before, side="right")), last)
