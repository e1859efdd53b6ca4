"""What a route policy sees and returns. The whole fleet is in one view, and nothing in it can be changed.

Load is tokens of pending work, not a count of requests. Signals are those of the moment of routing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from belady.core.request import Request


class ReplicaView(Protocol):
    """One replica as a router may see it."""

    @property
    def pending_tokens(self) -> int:
        """Prompt tokens routed to it and not computed yet, in tokens."""
        ...

    @property
    def requests(self) -> int:
        """Requests routed to it and not ended."""
        ...

    def probe(self, request: Request) -> int:
        """Prompt tokens of `request` that its cache holds now; no side effect."""
        ...


class RoutePolicy(Protocol):
    """Chooses a replica for every request, once, when it arrives."""

    def route(self, request: Request, replicas: Sequence[ReplicaView], now: float) -> int:
        """Index into `replicas`, of which there is at least one."""
        ...
