"""Synthetic agents: sessions that share a system prompt, extend their own context turn by turn, think between turns.

Token ids are real values drawn from the seed, so that a turn's prompt is the last prompt, the last answer and what is
new. Every session draws from a stream of its own: its content does not depend on how sessions interleave.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from belady.core.paritylog import Output
from belady.core.request import Request
from belady.sim.ranges import Count, MeanTokens, Rate, Seconds, SharedTokens
from belady.sim.workload.agents import ClosedLoop, Turn
from belady.sim.workload.base import Call, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticConfig:
    """Shape of the load. Lengths in tokens are means of exponential draws (at least one token), times in seconds.

    With `rate`, sessions start as a Poisson process of that many a second; without, `concurrent` are kept under way.
    """

    sessions: Count = 64
    turns: Count = 8
    roles: Count = 4
    """Each role has a prompt of its own behind the system prompt."""
    system_tokens: SharedTokens = 1000
    role_tokens: SharedTokens = 500
    user_tokens: MeanTokens = 300.0
    output_tokens: MeanTokens = 150.0
    think_seconds: Seconds = 5.0
    rate: Rate | None = None
    concurrent: Count = 8


def _tokens(rng: random.Random, count: int) -> array[int]:
    """`count` ids below 65,536."""
    return array("i", array("H", rng.randbytes(2 * count)))


def _length(rng: random.Random, mean: float) -> int:
    return max(1, round(rng.expovariate(1 / mean)))


@dataclass(frozen=True, slots=True)
class _Session:
    number: int
    config: SyntheticConfig
    seed: int
    limits: Limits
    time_scale: float

    def turns(self) -> Iterator[Turn]:
        config = self.config
        rng = random.Random(f"session {self.seed} {self.number}")
        role = self.number % config.roles
        shared = random.Random(f"system {self.seed}")
        own = random.Random(f"role {self.seed} {role}")
        context = _tokens(shared, config.system_tokens)
        context += _tokens(own, config.role_tokens)
        for _ in range(config.turns):
            context += _tokens(rng, _length(rng, config.user_tokens))
            answer = _tokens(rng, _length(rng, config.output_tokens))
            prompt, most, output = self.limits.fit(len(context), len(answer))
            think = rng.expovariate(1 / config.think_seconds) if config.think_seconds else 0.0
            request = self._request(context[:prompt].tobytes(), prompt, most)
            yield Turn(
                lambda rid, at, r=request, o=Output(length=output, tokens=tuple(answer)): Call(  # type: ignore[misc]
                    at, _numbered(r, rid), o
                ),
                think * self.time_scale,
            )
            context += answer

    def _request(self, prompt: bytes, tokens: int, most: int) -> Request:
        return Request(
            rid=0, prompt=prompt, prompt_tokens=tokens, max_tokens=most, program=f"session-{self.number}"
        )


def _numbered(request: Request, rid: int) -> Request:
    return Request(
        rid=rid,
        prompt=request.prompt,
        prompt_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens,
        program=request.program,
    )


def synthetic(config: SyntheticConfig, limits: Limits, *, seed: int, time_scale: float) -> ClosedLoop:
    """The sessions as a source; Poisson starts when `config.rate` is given."""
    scripts = [_Session(n, config, seed, limits, time_scale) for n in range(config.sessions)]
    total = config.sessions * config.turns
    if config.rate is None:
        note = f"{config.sessions:,} synthetic sessions, {config.concurrent:,} at a time, seed {seed}"
        return ClosedLoop(scripts, [0.0] * config.concurrent, limits, config.concurrent, total, [note])
    rng = random.Random(f"starts {seed}")
    at, starts = 0.0, []
    for _ in scripts:
        at += rng.expovariate(config.rate) * time_scale
        starts.append(at)
    note = f"{config.sessions:,} synthetic sessions, Poisson at {config.rate:g}/s, seed {seed}"
    return ClosedLoop(scripts, starts, limits, None, total, [note])
