"""What a workload is to the simulator: calls that arrive, and calls that follow when others end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from belady.core.paritylog import Output
from belady.core.request import Request


class WorkloadError(ValueError):
    """A workload that cannot be built as asked; the message says which setting to change."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that reaches the API at `at` seconds, and what it would produce (which the core never sees)."""

    at: float
    request: Request
    output: Output


class Source(Protocol):
    """Calls in virtual time."""

    @property
    def total(self) -> int | None:
        """Number of calls in all, None when only the run will tell."""
        ...

    def initial(self) -> Iterator[Call]:
        """Calls whose times depend on nothing, in time order."""
        ...

    def ended(self, rid: int, now: float) -> Sequence[Call]:
        """Calls that follow now that request `rid` has ended (finished or refused); none before `now`."""
        ...

    def notes(self) -> list[str]:
        """What was changed or left out of the recorded data, with counts; read after the run."""
        ...


@dataclass(slots=True, kw_only=True)
class Limits:
    """How requests are bounded, and what that changed.

    `max_tokens` is what clients ask for at most (None: all that the context leaves). With `clip`, a prompt that would
    not leave room for its recorded output loses its tail; without, the core refuses what can never run.
    """

    max_context: int
    max_tokens: int | None = None
    clip: bool = False
    clipped: int = 0
    raised: int = 0
    """Recorded outputs of zero tokens, raised to one: a request always draws one."""

    def fit(self, prompt: int, output: int) -> tuple[int, int, int]:
        """Prompt tokens, most output tokens to ask for, and true output tokens of a recorded call."""
        if output < 1:
            self.raised += 1
            output = 1
        if self.clip and prompt + output > self.max_context:
            self.clipped += 1
            prompt = max(1, self.max_context - output)
        left = max(1, self.max_context - prompt)
        return prompt, left if self.max_tokens is None else min(left, self.max_tokens), output

    def notes(self) -> list[str]:
        """Sentences for the report; empty when nothing was changed."""
        notes = []
        if self.clipped:
            notes.append(
                f"{self.clipped:,} prompts were cut to fit the context of {self.max_context:,} tokens"
            )
        if self.raised:
            notes.append(f"{self.raised:,} recorded outputs of 0 tokens count as 1 token")
        return notes
