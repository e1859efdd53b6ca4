"""The step plan: deltas only, never whole block tables. Executors apply it; nothing here computes.

Order of application inside an executor: `drops`, `admits`, `pages`, `trims`, `copies`, then the forward pass over
`prefills` and `decodes`. Plans execute strictly in the order of submission, which is what makes it safe for a plan to
reuse pages that an earlier, still running plan writes to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from belady.core.events import Event
from belady.core.request import Request

NO_PAGE = -1
"""In a block table: this page of a sliding-window group has left the window."""


@dataclass(frozen=True, slots=True)
class Admit:
    """A request enters the batch with a block table per layer group.

    `tables[g][k]` is the physical page for tokens [k*P, (k+1)*P). The first `reused` tokens hold valid KV. `output`
    (int32 little-endian) and `generated` are what it had produced before a preemption: its sequence is
    `request.prompt + output`.
    """

    request: Request
    reused: int
    tables: tuple[tuple[int, ...], ...]
    generated: int = 0
    output: bytes = b""


@dataclass(frozen=True, slots=True)
class Prefill:
    """Compute tokens [start, start + count) of the sequence; when `samples`, also draw the next token."""

    rid: int
    start: int
    count: int
    samples: bool


@dataclass(frozen=True, slots=True)
class NewPages:
    """Append `pages` to the block table of `rid` in layer group `group`."""

    rid: int
    group: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the first `slots` token slots of page `src` to page `dst` in layer group `group`, in every layer."""

    group: int
    src: int
    dst: int
    slots: int


@dataclass(frozen=True, slots=True)
class Trim:
    """In layer group `group` the first `upto` entries of the block table have left the window (now `NO_PAGE`)."""

    rid: int
    group: int
    upto: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What to run next.

    Every rid in `decodes` feeds its last sampled token (`prev(row)`, resolved inside the executor) and draws the next.
    A plan with `repeat > 1` has decode rows only and holds for that many iterations while no fact arrives: drivers
    expand it. A plan without rows asks for nothing (its `events` still count).
    """

    step: int
    admits: tuple[Admit, ...] = ()
    prefills: tuple[Prefill, ...] = ()
    decodes: tuple[int, ...] = ()
    pages: tuple[NewPages, ...] = ()
    copies: tuple[PageCopy, ...] = ()
    trims: tuple[Trim, ...] = ()
    drops: tuple[int, ...] = ()
    repeat: int = 1
    tokens: int = 0
    """Tokens computed per iteration."""
    context_tokens: int = 0
    """Sum over decode rows of the tokens their attention reads in the first iteration."""
    seconds: float | None = None
    """Predicted duration of the first iteration, where the core was given a `StepCost`."""
    events: tuple[Event, ...] = field(default=())

    @property
    def has_rows(self) -> bool:
        """True when the executor has something to compute."""
        return bool(self.prefills or self.decodes)

    @property
    def sampled(self) -> tuple[int, ...]:
        """Rids that draw a token, in result order: finishing prefills first, then `decodes`."""
        if not self.prefills:
            return self.decodes
        return tuple(p.rid for p in self.prefills if p.samples) + self.decodes
