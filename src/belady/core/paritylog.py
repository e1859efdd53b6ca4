"""What two drivers must agree on: one log of outside facts, durations and outputs. Pure data; nothing here runs it.

Everything else (step results, plans, events) each driver makes itself. Rules that both follow:

- facts of one time are fed together, in log order, and then the pipeline is polled until it has no plan;
- a step that completes at that very time is fed, and the pipeline polled, before them;
- a plan starts when it is submitted or when the plan before it ends, whichever is later, and iteration i ends
  `duration(step, i)` seconds after the one before (sums in that order, so that times are equal to the last bit);
- a repeat plan ends at the first iteration boundary at or after the time of a fact, with one iteration at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from belady.core.facts import Fact, StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a request would produce, hidden from core and policies.

    It stops by itself with output token number `length` (None: only `max_tokens` ends it). Token k is
    `tokens[k % len(tokens)]`; None where token values do not exist, which then holds for every request of the log.
    """

    length: int | None = None
    tokens: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        assert self.length is None or self.length >= 1, "an output has at least one token"
        assert self.tokens is None or self.tokens, "token values are a non-empty run, or None"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityLog:
    """Outside facts in time order, a duration for every iteration, an output for every request."""

    facts: tuple[Fact, ...]
    """No `StepResult` among them."""
    durations: tuple[tuple[float, ...], ...]
    """Seconds, per step (wrapping around) and iteration (wrapping around); all positive."""
    outputs: Mapping[int, Output]
    """By rid."""

    def __post_init__(self) -> None:
        assert not any(isinstance(fact, StepResult) for fact in self.facts), (
            "drivers make step results themselves"
        )
        times = [fact.at for fact in self.facts]
        assert times == sorted(times), "facts must be in time order"
        assert self.durations and all(self.durations), "at least one duration for at least one step"
        assert all(seconds > 0 for step in self.durations for seconds in step), "durations are positive"

    def duration(self, step: int, iteration: int) -> float:
        """Seconds of iteration `iteration` of plan number `step`."""
        step_durations = self.durations[step % len(self.durations)]
        return step_durations[iteration % len(step_durations)]
