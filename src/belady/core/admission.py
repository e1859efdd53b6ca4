"""Giving a waiting request its place: what it reuses, what it must compute, and the pages for both.

Knows neither the queue's order nor budgets; the scheduler asks for one request at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from belady.core.cache import KvCache
from belady.core.config import CoreConfig
from belady.core.draft import Draft
from belady.core.events import Loss, Scheduled
from belady.core.plan import Admit
from belady.core.row import Row
from belady.core.tables import BlockTables


class Admission:
    """Matches, pins and places requests."""

    def __init__(self, config: CoreConfig, cache: KvCache, tables: BlockTables) -> None:
        self._config = config
        self._cache = cache
        self._tables = tables

    def shares_unfinished_prefill(self, row: Row, unstored: Iterable[Row]) -> bool:
        """Somebody is computing a longer part of this prompt than is cached: waiting for it costs less than doing it
        twice. It ends with that prefill, so nobody starves."""
        if not self._config.prefix_cache:
            return False
        request = row.request
        size = self._cache.page_keys
        cached: int | None = None
        for other in unstored:
            if other.request.namespace != request.namespace:
                continue
            shared = self._cache.common_keys(request.prompt, other.request.prompt) // size * size
            if shared < size:
                continue
            if cached is None:
                cached = self._cache.probe(request.namespace, request.prompt)
            if shared > cached and other.anchor is not None and other.anchor.end < shared:
                return True
        return False

    def place(self, row: Row, draft: Draft, now: float, *, alone: bool) -> Scheduled | None:
        """Match, pin, then look for room: pinning turns evictable pages into protected ones.

        Fills in the row, drafts its `Admit` and returns the event; None and nothing changed when pages are short. `alone`:
        no request runs that could free any.
        """
        request, unit = row.request, self._config.key_tokens
        row.run += 1
        total = request.prompt_tokens + row.generated
        keys = row.keys(total) if self._config.prefix_cache else b""
        match = self._cache.match(request.namespace, keys, request.program, now)
        matched = min(match.keys * unit, total)
        limit = min(matched, total - 1)
        # A key stands for `unit` tokens; windows are checked in whole keys.
        fit = usable = min(self._cache.usable_keys(match, -(-limit // unit)) * unit, limit)
        tables = self._tables.make(match, usable, total, row, draft, now)
        if tables is None and match.keys and alone:
            # Nobody will free pages: do without the match, which pins some, rather than wait for ever.
            self._cache.unpin(match.span, now)
            usable, match = 0, self._cache.match(request.namespace, b"", request.program, now)
            tables = self._tables.make(match, 0, total, row, draft, now)
        if tables is None:
            self._cache.unpin(match.span, now)
            return None
        row.anchor, row.tables, row.duplicates = match.span, tables, []
        row.own_from = usable // self._config.page_size
        row.computed, row.confirmed, row.target = usable, usable, total
        row.settle = None
        row.checkpoint = limit // self._config.page_size * self._config.page_size if fit < limit else None
        if row.cached is None:
            row.cached = min(usable, request.prompt_tokens)
        losses = _losses(matched, limit, fit, usable, match.ghost_keys * unit)
        snapshot = tuple(tuple(table) for table in tables)
        admit = Admit(request, usable, snapshot, row.generated, row.output.tobytes())
        draft.admits.append((row, row.run, admit))
        return Scheduled(
            now,
            row.rid,
            request.prompt_tokens,
            matched,
            usable,
            0,
            matched - usable,
            losses,
            row.preemptions > 0,
            now - row.arrived,
        )


def _losses(matched: int, limit: int, fit: int, usable: int, ghost: int) -> tuple[tuple[Loss, int], ...]:
    """Tokens not reused, by reason; zero counts are left out."""
    counts = (
        (Loss.LAST_TOKEN, matched - limit),
        (Loss.WINDOW, limit - fit),
        (Loss.NO_ROOM, fit - usable),
        (Loss.EVICTED, ghost),
    )
    return tuple((reason, tokens) for reason, tokens in counts if tokens)
