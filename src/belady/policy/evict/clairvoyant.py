"""Farthest next use leaves first.

Belady's MIN ("A study of replacement algorithms for a virtual-storage computer", 1966), prefix-closed, over forecasts
that a driver feeds from a recorded trace (`Request.reuse`). A new run competes like any other, so content that will not
be used again leaves first: MIN with bypass. Without forecasts it is LRU.
"""

from __future__ import annotations

from dataclasses import dataclass

from belady.core.forecast import NEVER
from belady.core.view import SpanView
from belady.policy.evict.heap import VictimHeap


@dataclass(frozen=True, slots=True, kw_only=True)
class ClairvoyantConfig:
    """The future has nothing to set."""


class Clairvoyant:
    """Evict by farthest next use; unknown counts as never, oldest first."""

    def __init__(self, config: ClairvoyantConfig) -> None:
        self._heap = VictimHeap()

    def added(self, span: SpanView, now: float) -> None:
        next_use = NEVER if span.next_use is None else span.next_use
        self._heap.put(span, -next_use, span.last_use)

    def removed(self, span: SpanView) -> None:
        self._heap.discard(span)

    def victim(self, now: float) -> SpanView | None:
        return self._heap.first()
