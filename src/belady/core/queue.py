"""Requests that wait, in the order that a policy ranks them. Knows nothing of pages."""

from __future__ import annotations

from heapq import heappop, heappush

from belady.core.row import Phase, Row
from belady.core.view import OrderPolicy, RequestView


class ArrivalOrder:
    """Priority, then arrival: what applies when no order policy is configured."""

    def rank(self, request: RequestView, arrived_at: float) -> tuple[float, ...]:
        return (-request.priority,)


class WaitingQueue:
    """A heap by (rank, arrival); rows that left otherwise are skipped when they surface."""

    def __init__(self, order: OrderPolicy) -> None:
        self._order = order
        self._heap: list[tuple[tuple[float, ...], int, Row]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, row: Row) -> None:
        """Queue a row; one that comes back keeps its place by its arrival."""
        heappush(self._heap, (self._order.rank(row.request, row.arrived), row.seq, row))
        self._size += 1

    def head(self) -> Row | None:
        """The row to admit next, or None."""
        heap = self._heap
        while heap and heap[0][2].phase is not Phase.WAITING:
            heappop(heap)
        return heap[0][2] if heap else None

    def pop(self) -> Row:
        """Take the head, which must exist."""
        row = self.head()
        assert row is not None
        heappop(self._heap)
        self._size -= 1
        return row

    def discard(self, row: Row) -> None:
        """Note that a waiting row ended (its phase says so)."""
        assert row.phase is not Phase.WAITING
        self._size -= 1
