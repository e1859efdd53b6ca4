"""The executor port: what the engine loop needs from whoever runs plans. Knows neither models nor text."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from belady.core.facts import Stop
from belady.core.plan import StepPlan


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log-probabilities (natural, of the raw distribution) of one sampled token and of the most likely ones."""

    logprob: float
    top_ids: tuple[int, ...] = ()
    """Most likely first."""
    top_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One iteration of a plan, or the news that a plan ended without another one.

    `tokens` has one id per row of `plan.sampled`, in that order, and is None where no token values exist (a fake)
    or where no iteration was run. A row that had stopped earlier holds an arbitrary id there: it counts for nothing.
    """

    step: int
    at: float
    """Seconds on the executor's clock when the iteration ended."""
    iteration: int | None
    """0-based; None when the plan ended between iterations (interrupt) or failed."""
    tokens: array[int] | None = None
    stops: tuple[Stop, ...] = ()
    logprobs: Mapping[int, RowLogprobs] = field(default_factory=dict)
    """By rid, for rows that asked for them."""
    done: bool = False
    """Nothing more will come for this plan."""
    seconds: float = 0.0
    """Duration of this iteration."""
    error: BaseException | None = None
    """The plan failed as a whole: none of its rows drew a token in this iteration."""


class Executor(Protocol):
    """Runs plans strictly in the order of submission. `collect` belongs to one thread; the rest may come from any."""

    def submit(self, plan: StepPlan) -> None:
        """Queue `plan`; returns at once."""
        ...

    def collect(self, deadline: float | None) -> list[Progress]:
        """Wait for progress, for `wake`, or until `deadline` (clock seconds; None: no limit); oldest first."""
        ...

    def interrupt(self) -> None:
        """End the running plan at its next iteration boundary (one iteration is always run). Later plans run whole."""
        ...

    def wake(self) -> None:
        """Make the current or the next `collect` return without waiting."""
        ...

    def close(self) -> None:
        """Stop after the current iteration and give back what is held. Idempotent."""
        ...
