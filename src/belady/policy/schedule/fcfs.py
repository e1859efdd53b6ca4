"""First come, first served.

That is within a priority; a higher priority is sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

from belady.core.view import RequestView


@dataclass(frozen=True, slots=True, kw_only=True)
class FcfsConfig:
    """Nothing to set."""


class Fcfs:
    """Rank by priority alone; the core breaks ties by order of arrival."""

    def __init__(self, config: FcfsConfig) -> None:
        pass

    def rank(self, request: RequestView, arrived_at: float) -> tuple[float, ...]:
        return (-request.priority,)
