"""A min-heap of evictable runs with lazy deletion, shared by policies that rank runs by a key fixed when added."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from belady.core.view import SpanView

Item = tuple[Any, ...]
"""The rank's parts, then the object id, then the run."""


class VictimHeap:
    """Runs by rank, smallest first; equal ranks go by object id. Amortised O(log n) per change.

    An entry is one tuple, shared by the heap and the look-up table: a tree may have millions of evictable runs.
    """

    def __init__(self) -> None:
        self._heap: list[Item] = []
        self._item: dict[int, Item] = {}

    def __len__(self) -> int:
        return len(self._item)

    def put(self, span: SpanView, *rank: float) -> None:
        """Add a run or change its rank."""
        old = self._item.get(span.oid)
        if old is not None and old[:-2] == rank:
            return
        item = (*rank, span.oid, span)
        self._item[span.oid] = item
        heappush(self._heap, item)
        if len(self._heap) > 64 + 2 * len(self._item):
            self._heap = list(self._item.values())
            heapify(self._heap)

    def discard(self, span: SpanView) -> None:
        self._item.pop(span.oid, None)

    def first(self) -> SpanView | None:
        """The run of smallest rank, or None."""
        heap, current = self._heap, self._item
        while heap:
            item = heap[0]
            if current.get(item[-2]) is item:
                return item[-1]
            heappop(heap)
        return None
