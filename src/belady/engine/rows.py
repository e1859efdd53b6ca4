"""Row state of an executor: block tables and positions as arrays, one slot per request. Computes nothing.

Plans carry deltas; this is where they add up. No objects per token or page: a decode step indexes arrays by slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from belady.core.plan import NO_PAGE, Admit, NewPages, StepPlan, Trim

Ints = npt.NDArray[np.int32]
Slots = npt.NDArray[np.intp]

_FIRST_SLOTS = 8


class Rows:
    """`tables[g][slot]` is a block table padded with `NO_PAGE`; `position` counts tokens with KV, `last` is the token
    that a decode feeds, `generated` counts drawn tokens."""

    def __init__(self, groups: int, table_length: int, slots: int = _FIRST_SLOTS) -> None:
        """`table_length` pages hold the longest context that the core admits."""
        self._length = table_length
        self._slot: dict[int, int] = {}
        self._free = list(range(slots - 1, -1, -1))
        self._decodes: tuple[int, ...] = ()
        self._decode_slots: Slots = np.empty(0, np.intp)
        self.capacity = slots
        self.tables = [np.full((slots, table_length), NO_PAGE, np.int32) for _ in range(groups)]
        self.widths = [np.zeros(slots, np.int32) for _ in range(groups)]
        self.position = np.zeros(slots, np.int32)
        self.last = np.zeros(slots, np.int32)
        self.generated = np.zeros(slots, np.int32)
        self.sequences: list[Ints | None] = [None] * slots
        """Prompt and earlier output, for prefill chunks."""

    def __len__(self) -> int:
        return len(self._slot)

    def slot(self, rid: int) -> int:
        return self._slot[rid]

    def slots(self, rids: Sequence[int]) -> Slots:
        """Slots of several rows."""
        return np.fromiter((self._slot[rid] for rid in rids), np.intp, len(rids))

    def decode_slots(self, decodes: tuple[int, ...]) -> Slots:
        """As `slots`; the core hands out the same tuple until the set of decoding rows changes."""
        if decodes is not self._decodes:
            self._decode_slots = self.slots(decodes)
            self._decodes = decodes
        return self._decode_slots

    def apply(self, plan: StepPlan) -> tuple[list[int], list[tuple[int, Admit]]]:
        """Apply drops, admits, pages and trims; returns the slots freed and (slot, admit) of the rows that entered.

        Trims come last: a row may enter with pages that the same plan already puts behind its window.
        """
        freed = [self._drop(rid) for rid in plan.drops if rid in self._slot]
        entered = [(self._admit(admit), admit) for admit in plan.admits]
        for new in plan.pages:
            self._extend(new)
        for trim in plan.trims:
            self._trim(trim)
        return freed, entered

    def _drop(self, rid: int) -> int:
        slot = self._slot.pop(rid)
        for table, width in zip(self.tables, self.widths, strict=True):
            table[slot, : width[slot]] = NO_PAGE
            width[slot] = 0
        self.sequences[slot] = None
        self._free.append(slot)
        self._decodes = ()
        self._decode_slots = np.empty(0, np.intp)
        return slot

    def _admit(self, admit: Admit) -> int:
        rid = admit.request.rid
        assert rid not in self._slot, f"request {rid} admitted twice"
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._slot[rid] = slot
        for group, pages in enumerate(admit.tables):
            self.tables[group][slot, : len(pages)] = pages
            self.widths[group][slot] = len(pages)
        prompt = np.frombuffer(admit.request.prompt, np.int32)
        output = np.frombuffer(admit.output, np.int32)
        self.sequences[slot] = np.concatenate([prompt, output]) if len(output) else prompt
        self.position[slot] = admit.reused
        self.generated[slot] = admit.generated
        return slot

    def _extend(self, new: NewPages) -> None:
        slot = self._slot[new.rid]
        begin = int(self.widths[new.group][slot])
        end = begin + len(new.pages)
        assert end <= self._length, f"request {new.rid} outgrew its block table of {self._length} pages"
        self.tables[new.group][slot, begin:end] = new.pages
        self.widths[new.group][slot] = end

    def _trim(self, trim: Trim) -> None:
        self.tables[trim.group][self._slot[trim.rid], : trim.upto] = NO_PAGE

    def _grow(self) -> None:
        more = self.capacity
        self._free.extend(range(2 * more - 1, more - 1, -1))
        pad = np.full((more, self._length), NO_PAGE, np.int32)
        zeros = np.zeros(more, np.int32)
        self.tables = [np.concatenate([table, pad]) for table in self.tables]
        self.widths = [np.concatenate([width, zeros]) for width in self.widths]
        self.position = np.concatenate([self.position, zeros])
        self.last = np.concatenate([self.last, zeros])
        self.generated = np.concatenate([self.generated, zeros])
        self.sequences.extend([None] * more)
        self.capacity += more
