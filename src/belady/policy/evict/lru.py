"""Least recently used leaves first.

A request touches its whole path at once, so an ancestor is never older than its descendant and the tail of a path goes
before its head.
"""

from __future__ import annotations

from dataclasses import dataclass

from belady.core.view import SpanView
from belady.policy.evict.heap import VictimHeap


@dataclass(frozen=True, slots=True, kw_only=True)
class LruConfig:
    """LRU has nothing to set."""


class Lru:
    """Evict by time of last use, ties by object id."""

    def __init__(self, config: LruConfig) -> None:
        self._heap = VictimHeap()

    def added(self, span: SpanView, now: float) -> None:
        self._heap.put(span, span.last_use)

    def removed(self, span: SpanView) -> None:
        self._heap.discard(span)

    def victim(self, now: float) -> SpanView | None:
        return self._heap.first()
