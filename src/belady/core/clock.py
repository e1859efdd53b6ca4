"""The clock port. The core never holds one; drivers do."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Seconds, monotone, arbitrary origin."""

    def now(self) -> float: ...

    def sleep_for(self, deadline: float) -> float:
        """Real seconds to wait until `deadline`; 0 for a virtual clock."""
        ...
