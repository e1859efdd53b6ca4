"""One replica after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from belady.core.request import Request
from belady.policy.route.view import ReplicaView


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobinConfig:
    """Nothing to set."""


class RoundRobin:
    """The n-th request goes to replica n modulo their number."""

    def __init__(self, config: RoundRobinConfig) -> None:
        self._next = 0

    def route(self, request: Request, replicas: Sequence[ReplicaView], now: float) -> int:
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen
