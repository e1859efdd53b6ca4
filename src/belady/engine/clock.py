"""Clocks for drivers. `VirtualClock` moves only when it is told to; nothing here waits."""

from __future__ import annotations

import time


class MonotonicClock:
    """The machine's monotonic clock, in seconds."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_for(self, deadline: float) -> float:
        """Real seconds until `deadline`, 0 when it has passed."""
        return max(0.0, deadline - time.monotonic())


class VirtualClock:
    """A clock that its owner advances; it never goes back and never waits."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep_for(self, deadline: float) -> float:
        """Always 0: nobody waits for virtual time."""
        return 0.0

    def advance_to(self, at: float) -> None:
        """Move to `at`; staying where it is, is allowed."""
        assert at >= self._now, f"virtual time cannot go back from {self._now} to {at}"
        self._now = at
