"""What one step may still hold: tokens, bytes to copy and seconds, as arithmetic. Pages are asked of the cache."""

from __future__ import annotations

from belady.core.config import CoreConfig
from belady.core.cost import StepBatch, StepCost

MIN_CHUNK = 16
"""Tokens of prefill that a step takes even over its time budget, so that prompts always progress."""


class StepBudget:
    """Made anew for each step; decode rows are charged first, since all of them run in every step."""

    def __init__(self, config: CoreConfig, cost: StepCost | None, decodes: int, context: int) -> None:
        self._tokens = config.step_tokens - decodes
        self._bytes = config.step_bytes
        self._limit = config.step_seconds
        self._cost = cost
        self._decodes = decodes
        self._context = context
        self._prefill: list[tuple[int, int]] = []
        self._spent = False

    @property
    def open(self) -> bool:
        """True while another prefill chunk may fit."""
        return self._tokens > 0 and not self._spent and (self._bytes is None or self._bytes > 0)

    def chunk(self, want: int, done: int) -> int:
        """Tokens of a prefill that needs `want` more behind `done` computed ones that still fit."""
        count = min(want, self._tokens)
        if count <= 0 or self._spent:
            return 0
        if self._limit is None or self._seconds(count, done) <= self._limit:
            return count
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            if self._seconds(middle, done) <= self._limit:
                low = middle
            else:
                high = middle
        self._spent = True
        return low if self._prefill else max(low, min(MIN_CHUNK, count))

    def spend(self, count: int, done: int) -> None:
        """Charge a planned chunk."""
        self._tokens -= count
        self._prefill.append((count, done))

    def spend_bytes(self, count: int) -> None:
        """Charge bytes of page copies."""
        if self._bytes is not None:
            self._bytes -= count

    def _seconds(self, count: int, done: int) -> float:
        assert self._cost is not None
        return self._cost.seconds(StepBatch(self._decodes, self._context, [*self._prefill, (count, done)]))
