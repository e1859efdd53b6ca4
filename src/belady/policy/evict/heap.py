"""A min-heap of evictable runs with lazy deletion, shared by policies that rank runs by a key fixed when added."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from belady.core.view import SpanView

Rank = tuple[Any, ...]


class VictimHeap:
    """Runs by rank, smallest first; equal ranks go by object id. Amortised O(log n) per change."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int, SpanView]] = []
        self._rank: dict[int, Rank] = {}

    def __len__(self) -> int:
        return len(self._rank)

    def put(self, span: SpanView, rank: Rank) -> None:
        """Add a run or change its rank."""
        if self._rank.get(span.oid) == rank:
            return
        self._rank[span.oid] = rank
        heappush(self._heap, (rank, span.oid, span))
        if len(self._heap) > 64 + 2 * len(self._rank):
            self._compact()

    def discard(self, span: SpanView) -> None:
        self._rank.pop(span.oid, None)

    def first(self) -> SpanView | None:
        """The run of smallest rank, or None."""
        heap, ranks = self._heap, self._rank
        while heap:
            rank, oid, span = heap[0]
            if ranks.get(oid) == rank:
                return span
            heappop(heap)
        return None

    def _compact(self) -> None:
        live: dict[int, tuple[Rank, int, SpanView]] = {}
        for item in self._heap:
            if self._rank.get(item[1]) == item[0]:
                live[item[1]] = item
        self._heap = list(live.values())
        heapify(self._heap)
