"""Cached prefix against load.

The replica where the fewest tokens are computed before the first answer.

A replica's price is what is queued there plus what it would have to compute of this prompt. A long match is worth
exactly the queue it outweighs, so that affinity gives way by predicted work and not by a count of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from belady.core.request import Request
from belady.policy.route.view import ReplicaView


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixAffinityConfig:
    """`load_weight`: tokens of match that one pending token outweighs; 0 follows the longest match alone."""

    load_weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.load_weight >= 0:
            raise ValueError(f"load_weight must be 0 or more, not {self.load_weight}")


class PrefixAffinity:
    """Least (weighted pending tokens - matched tokens), then fewest requests, then the first."""

    def __init__(self, config: PrefixAffinityConfig) -> None:
        self._load_weight = config.load_weight

    def route(self, request: Request, replicas: Sequence[ReplicaView], now: float) -> int:
        def price(index: int) -> tuple[float, int, int]:
            replica = replicas[index]
            queued = self._load_weight * replica.pending_tokens
            return (queued - replica.probe(request), replica.requests, index)

        return min(range(len(replicas)), key=price)
