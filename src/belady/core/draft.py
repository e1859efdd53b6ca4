"""The deltas of a plan while it is being made, and what is remembered of it while it runs. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from belady.core.config import CoreConfig
from belady.core.plan import Admit, NewPages, PageCopy, Prefill, StepPlan, Trim
from belady.core.row import Phase, Row

D = TypeVar("D")
_ALIVE = (Phase.PREFILL, Phase.DECODE, Phase.ENDING)


@dataclass(slots=True)
class Draft:
    """Deltas of the plan being made, each with its row and the row's run (see `Row.run`): entries of rows that are
    preempted before the plan is complete are dropped."""

    admits: list[tuple[Row, int, Admit]] = field(default_factory=list)
    prefills: list[tuple[Row, Prefill]] = field(default_factory=list)
    pages: list[tuple[Row, int, NewPages]] = field(default_factory=list)
    copies: list[tuple[Row, int, PageCopy]] = field(default_factory=list)
    trims: list[tuple[Row, int, Trim]] = field(default_factory=list)

    def copy_bytes(self, row: Row, config: CoreConfig) -> int:
        """Bytes that the copies drafted for a row in its present run will move."""
        return sum(
            copy.slots * config.groups[copy.group].bytes_per_token
            for other, run, copy in self.copies
            if other is row and run == row.run
        )


@dataclass(slots=True)
class InFlight:
    """What the scheduler must remember of a submitted plan until its result arrives."""

    plan: StepPlan
    rows: tuple[Row, ...]
    chunks: list[tuple[Row, int, int]]
    """Row, its run and tokens computed after each prefill chunk."""
    firsts: tuple[Row, ...]
    ending: list[Row]


def kept(entries: list[tuple[Row, int, D]]) -> tuple[D, ...]:
    """Deltas whose row still is in the run for which they were drafted."""
    if not entries:
        return ()
    return tuple(delta for row, run, delta in entries if row.run == run and row.phase in _ALIVE)
