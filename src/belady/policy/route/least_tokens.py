"""Fewest pending prompt tokens.

Knows no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from belady.core.request import Request
from belady.policy.route.view import ReplicaView


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTokensConfig:
    """Nothing to set."""


class LeastTokens:
    """Fewest uncomputed prompt tokens, then fewest requests, then the first."""

    def __init__(self, config: LeastTokensConfig) -> None:
        pass

    def route(self, request: Request, replicas: Sequence[ReplicaView], now: float) -> int:
        return min(range(len(replicas)), key=lambda i: (replicas[i].pending_tokens, replicas[i].requests, i))
