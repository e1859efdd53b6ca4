"""How many requests run together when their contexts outgrow the pools. Knows only counts.

A request is admitted when its prompt fits, but it grows while it decodes. If running requests outgrow the pools, one is
preempted and its work partly lost; admitting another at once would repeat that for ever. So a preemption sets a limit, and
the limit rises by one for each full round of ends: additive increase, as congestion control does it.
"""

from __future__ import annotations


class Crowd:
    """A limit on running requests, learnt from preemptions; none until the first one."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._ends = 0

    def limit(self, most: int) -> int:
        """Requests that may run together, at most `most`."""
        return most if self._limit is None else min(most, self._limit)

    def outgrown(self, running: int) -> None:
        """A request was preempted for want of pages; `running` are left."""
        self._limit = max(1, running)
        self._ends = 0

    def ended(self, running: int) -> None:
        """A request ended; `running` are left."""
        if self._limit is None:
            return
        if not running:
            self._limit = None
            return
        self._ends += 1
        if self._ends >= self._limit:
            self._limit += 1
            self._ends = 0
