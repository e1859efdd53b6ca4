"""A request's state inside the scheduler. Counts tokens and pages; decides nothing."""

from __future__ import annotations

from array import array
from enum import Enum, auto

from belady.core.plan import NO_PAGE
from belady.core.prefix_tree import Span
from belady.core.request import Request


class Phase(Enum):
    WAITING = auto()
    PREFILL = auto()
    DECODE = auto()
    ENDING = auto()
    """Its last token is in flight; it gets no further row."""
    DONE = auto()


class Row:
    """One request from arrival to end.

    Token counts: `computed` = tokens whose KV is planned, valid outside DECODE (inside, see `Decodes`); `generated` =
    output tokens of earlier runs plus those planned up to the last phase change. `tables[g]` is the block table;
    entries before `own_from` belong to the tree (group 0) or are shared with it (sliding windows).
    """

    __slots__ = (
        "anchor",
        "arrived",
        "base",
        "cached",
        "checkpoint",
        "computed",
        "confirmed",
        "duplicates",
        "first_seen",
        "generated",
        "limit",
        "output",
        "own_from",
        "phase",
        "preemptions",
        "request",
        "run",
        "seq",
        "settle",
        "tables",
        "target",
    )

    def __init__(self, request: Request, seq: int, arrived: float, limit: int) -> None:
        self.request = request
        self.seq = seq
        self.arrived = arrived
        self.limit = limit
        """Most output tokens: what the client asked, cut to what context and cache can hold."""
        self.phase = Phase.WAITING
        self.run = 0
        """Counts admissions, so that stale timers are recognised."""
        self.anchor: Span | None = None
        self.tables: list[list[int]] = []
        self.own_from = 0
        self.duplicates: list[int] = []
        """Pages of group 0 whose run another request had stored first."""
        self.computed = 0
        self.confirmed = 0
        """Prefilled tokens whose result is in: more must not be stored, since a step can fail."""
        self.target = request.prompt_tokens
        """Tokens to prefill: the prompt, and after a preemption what had been generated."""
        self.generated = 0
        self.base = 0
        self.output: array[int] = array("i")
        """Token values received, empty in a simulation without tokens."""
        self.cached: int | None = None
        """Prompt tokens reused at the first admission."""
        self.preemptions = 0
        self.settle: int | None = None
        """Step whose result must be in before the row may be admitted again: its tokens are still in flight."""
        self.checkpoint: int | None = None
        """Prefill position at which the tree is given the sliding window that it lacked for this prefix."""
        self.first_seen = False

    @property
    def rid(self) -> int:
        return self.request.rid

    @property
    def live(self) -> bool:
        """Holds pages and has, or will have, rows."""
        return self.phase in (Phase.PREFILL, Phase.DECODE)

    @property
    def has_tokens(self) -> bool:
        """Prefix keys are token ids and output ids are known, so output can be stored."""
        return self.request.key_tokens == 1

    def keys(self, tokens: int) -> bytes:
        """Prefix keys of the first `tokens` tokens, as far as their values are known."""
        request = self.request
        if request.key_tokens > 1 or tokens <= request.prompt_tokens:
            whole = -(-tokens // request.key_tokens)
            return request.prompt[: 4 * whole]
        extra = min(tokens - request.prompt_tokens, len(self.output))
        return request.prompt + self.output[:extra].tobytes()

    def page_list(self, group: int, windowed: bool) -> list[int]:
        """Pages of a group that this row holds a reference to."""
        if not self.tables:
            return []
        table = self.tables[group]
        if windowed:
            return [page for page in table if page != NO_PAGE]
        return table[self.own_from :] + self.duplicates
