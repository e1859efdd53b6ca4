"""The set of decoding rows, advanced all at once by one clock. Knows nothing of pages or plans.

Every decoding row draws one token in every iteration, so the core keeps one counter of iterations and, per row, the
count at which it joined. What must happen to a row (its next page, its end) waits in heaps keyed by that counter: a
step costs work for the rows to which something happens, not for all rows.
"""

from __future__ import annotations

from heapq import heappop, heappush

from belady.core.row import Phase, Row


class Decodes:
    """Rows by rid in order of joining. `clock` counts decode iterations planned so far."""

    def __init__(self) -> None:
        self.clock = 0
        self._rows: dict[int, Row] = {}
        self._tuple: tuple[int, ...] | None = ()
        self._row_tuple: tuple[Row, ...] = ()
        self._offset = 0
        self._pages: list[tuple[int, int, int, Row]] = []
        self._ends: list[tuple[int, int, int, Row]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def join(self, row: Row) -> None:
        """A row whose prefill is planned decodes from the next iteration on."""
        row.phase = Phase.DECODE
        row.base = self.clock
        self._rows[row.rid] = row
        self._offset += row.computed + 1 - self.clock
        self._tuple = None
        heappush(self._ends, (self.clock + row.limit - row.generated, row.seq, row.run, row))

    def leave(self, row: Row) -> None:
        """Take a row out; its counters become those of this moment."""
        del self._rows[row.rid]
        self._offset -= row.computed + 1 - row.base
        done = self.clock - row.base
        row.computed += done
        row.generated += done
        self._tuple = None

    def computed(self, row: Row) -> int:
        """Tokens with planned KV."""
        return row.computed + self.clock - row.base if row.phase is Phase.DECODE else row.computed

    def generated(self, row: Row) -> int:
        """Output tokens planned."""
        return row.generated + self.clock - row.base if row.phase is Phase.DECODE else row.generated

    def rids(self) -> tuple[int, ...]:
        """Row order of the next plan; the same object until the set changes."""
        if self._tuple is None:
            self._tuple = tuple(self._rows)
            self._row_tuple = tuple(self._rows.values())
        return self._tuple

    def rows(self) -> tuple[Row, ...]:
        self.rids()
        return self._row_tuple

    def context(self) -> int:
        """Tokens that attention reads in the next iteration, over all rows."""
        return self._offset + len(self._rows) * self.clock

    def need_page_at(self, row: Row, capacity: int) -> None:
        """`row` has pages for `capacity` tokens: wake it at the iteration that needs more."""
        heappush(self._pages, (row.base + capacity - row.computed, row.seq, row.run, row))

    def pop_page(self, before: int) -> tuple[int, Row] | None:
        """The next row that needs a page in an iteration earlier than `before`, with that iteration."""
        heap = self._pages
        while heap and heap[0][0] < before:
            due, _, run, row = heappop(heap)
            if row.phase is Phase.DECODE and row.run == run:
                return due, row
        return None

    def until_end(self) -> int | None:
        """Iterations until the first row reaches its output limit."""
        heap = self._ends
        while heap and not self._valid(heap[0]):
            heappop(heap)
        return heap[0][0] - self.clock if heap else None

    def pop_ended(self) -> list[Row]:
        """Rows that have all their tokens planned, taken out."""
        ended = []
        heap = self._ends
        while heap and (heap[0][0] <= self.clock or not self._valid(heap[0])):
            item = heappop(heap)
            if self._valid(item):
                row = item[3]
                self.leave(row)
                row.phase = Phase.ENDING
                ended.append(row)
        return ended

    @staticmethod
    def _valid(item: tuple[int, int, int, Row]) -> bool:
        return item[3].phase is Phase.DECODE and item[3].run == item[2]
