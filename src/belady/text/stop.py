"""Finds stop strings in text that arrives in pieces, and holds back what may become one. Knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string that occurred. Positions in characters of the whole text fed so far."""

    stop: str
    start: int  # the text is to be cut here
    end: int  # exclusive


class StopMatcher:
    """Watches one text. The result does not depend on how the text was cut into deltas.

    Of several stop strings the one that is complete first counts; of those complete at the same character,
    the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` may be empty, its strings may not (ValueError)."""
        if any(not stop for stop in stops):
            raise ValueError("a stop string is empty; leave it out")
        self._stops = tuple(dict.fromkeys(stops))
        self._held = ""
        self._released = 0  # characters handed out
        self._match: StopMatch | None = None

    @property
    def match(self) -> StopMatch | None:
        """The match that ended the text, if one has."""
        return self._match

    def feed(self, delta: str) -> str:
        """Text that is now certainly outside every stop string. Empty, whatever comes, once one matched."""
        if self._match is not None:
            return ""
        text = self._held + delta
        found = self._first(text)
        if found is not None:
            start, end = found
            self._match = StopMatch(text[start:end], self._released + start, self._released + end)
            self._held = ""
            return self._release(text[:start])
        safe = len(text) - self._open_length(text)
        self._held = text[safe:]
        return self._release(text[:safe])

    def flush(self) -> str:
        """The text held back, when no more will come."""
        held, self._held = self._held, ""
        return self._release(held)

    def _release(self, text: str) -> str:
        self._released += len(text)
        return text

    def _first(self, text: str) -> tuple[int, int] | None:
        """Span of the match that ends first, the longest of these."""
        spans = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if not spans:
            return None
        end, start = min(spans)
        return start, end

    def _open_length(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = min(len(text), max((len(stop) - 1 for stop in self._stops), default=0))
        for length in range(longest, 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
