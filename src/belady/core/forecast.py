"""An object's estimated next use, in seconds on the driver's clock. Knows nothing of where estimates come from."""

from __future__ import annotations

import math
from dataclasses import dataclass

NEVER = math.inf
"""Next use of an object that nobody will use again."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """The keys before `upto` (exclusive, in keys of the prompt) that no earlier entry covers are next used at `at`.

    A request carries these in ascending `upto`; `at` never decreases along them, since whoever uses a key also
    uses all keys before it. `at` is a time or an order number of the same scale throughout a run, or `NEVER`.
    """

    upto: int
    at: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimated next use of what `owner` holds."""

    owner: str
    eta_p50: float
    eta_p90: float
    confidence: float
    source: str
    issued_at: float

    def residual(self, now: float) -> float | None:
        """Seconds to the next use seen from `now`; None (unknown) once `now` is past the 90th percentile."""
        if self.eta_p50 == NEVER:
            return NEVER
        elapsed = now - self.issued_at
        if elapsed > self.eta_p90:
            return None
        return max(0.0, self.eta_p50 - elapsed)
