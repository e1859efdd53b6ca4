"""Hypothesis strategies for parity logs: outside facts, durations, outputs, and a small cache to fight over."""

from __future__ import annotations

from array import array

from hypothesis import strategies as st

from belady.core.config import CoreConfig, GroupConfig
from belady.core.facts import Aborted, Arrived, Fact
from belady.core.paritylog import Output, ParityLog
from belady.core.request import Request

# Binary fractions: sums of times are exact, so that equal times really occur.
TIMES = st.integers(0, 48).map(lambda n: n / 8)
DURATIONS = st.integers(1, 12).map(lambda n: n / 16)


@st.composite
def configs(draw: st.DrawFn) -> CoreConfig:
    """Page pools small enough for eviction and preemption; sometimes a sliding-window group."""
    size = draw(st.sampled_from([1, 4, 16]))
    groups = [GroupConfig(name="full", pages=draw(st.integers(max(6, 40 // size), max(12, 160 // size))))]
    if draw(st.booleans()):
        window = draw(st.integers(1, 24))
        least = -(-window // size) + 2
        groups.append(
            GroupConfig(name="window", pages=draw(st.integers(least, least + 40 // size + 4)), window=window)
        )
    return CoreConfig(
        groups=tuple(groups),
        page_size=size,
        max_context=draw(st.integers(24, 96)),
        max_running=draw(st.integers(1, 6)),
        step_tokens=draw(st.integers(7, 40)),
        max_repeat=draw(st.sampled_from([1, 3, 64])),
        prefix_cache=draw(st.integers(0, 4)) > 0,
    )


@st.composite
def logs(draw: st.DrawFn) -> ParityLog:
    """Bursts of requests that share prefixes, aborts at any moment, outputs of any length."""
    bases = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=1, max_size=3))
    facts: list[Fact] = []
    outputs: dict[int, Output] = {}
    values = draw(st.booleans())
    for rid in range(draw(st.integers(1, 12))):
        base = draw(st.sampled_from(bases))
        prompt = base[: draw(st.integers(1, len(base)))] + draw(st.lists(st.integers(0, 3), max_size=6))
        at = draw(TIMES)
        request = Request(
            rid=rid,
            prompt=array("i", prompt).tobytes(),
            prompt_tokens=len(prompt),
            max_tokens=draw(st.integers(1, 40)),
            priority=draw(st.integers(0, 2)),
            namespace=draw(st.sampled_from(["", "b"])),
            program=draw(st.sampled_from([None, "p", "q"])),
        )
        facts.append(Arrived(at, request))
        if draw(st.integers(0, 3)) == 0:
            facts.append(Aborted(at + draw(TIMES), rid))
        tokens = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))) if values else None
        outputs[rid] = Output(length=draw(st.none() | st.integers(1, 40)), tokens=tokens)
    facts.sort(key=lambda fact: fact.at)
    durations = tuple(
        tuple(step)
        for step in draw(st.lists(st.lists(DURATIONS, min_size=1, max_size=4), min_size=1, max_size=6))
    )
    return ParityLog(facts=tuple(facts), durations=durations, outputs=outputs)
