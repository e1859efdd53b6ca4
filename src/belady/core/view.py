"""Read-only views that policies see. A policy proposes; only the core touches references, pages and tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from belady.core.intents import Intent


class SpanView(Protocol):
    """A cached run as an eviction policy may see it."""

    @property
    def oid(self) -> int:
        """Identity; ties break by it, so that engine and simulator agree."""
        ...

    @property
    def start(self) -> int:
        """Position of its first key in the sequence, in keys."""
        ...

    @property
    def end(self) -> int: ...

    @property
    def last_use(self) -> float:
        """When a request last matched or stored it, seconds."""
        ...

    @property
    def next_use(self) -> float | None:
        """Forecast next use, `NEVER`, or None when unknown."""
        ...

    @property
    def owners(self) -> tuple[str, ...]:
        """Programs that stored or matched it."""
        ...


class EvictPolicy(Protocol):
    """Orders evictable runs. Called when a run becomes or stops being evictable, never per token.

    The cache only ever takes pages from the tail of the run that `victim` names, so prefixes outlive their suffixes
    whatever the policy does.
    """

    def added(self, span: SpanView, now: float) -> None:
        """`span` became evictable, or its `last_use` or `next_use` changed while it was."""
        ...

    def removed(self, span: SpanView) -> None:
        """`span` is no longer evictable (pinned, extended or gone)."""
        ...

    def victim(self, now: float) -> SpanView | None:
        """The run whose tail should go first, or None when nothing is evictable. Changes nothing."""
        ...


class RequestView(Protocol):
    """A waiting request as an order policy may see it; the true output length is not among it."""

    @property
    def rid(self) -> int: ...

    @property
    def priority(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def program(self) -> str | None: ...


class OrderPolicy(Protocol):
    """Ranks waiting requests. Called once when a request starts to wait."""

    def rank(self, request: RequestView, arrived_at: float) -> tuple[float, ...]:
        """Smaller is admitted sooner; ties go by order of arrival."""
        ...


class SchedulerView(Protocol):
    """A replica as an advising policy may see it. Facts and labelled estimates, no grants of capacity."""

    def usage(self) -> float:
        """Used share of the fullest page pool, 0 to 1."""
        ...

    def waiting_requests(self) -> Sequence[RequestView]:
        """In no particular order."""
        ...

    def running_requests(self) -> Sequence[RequestView]: ...


class AdvisePolicy(Protocol):
    """Proposes intents once per step, after facts were applied and before anything is planned."""

    def propose(self, view: SchedulerView, now: float) -> Sequence[Intent]: ...
