"""Block tables of running rows: sharing, copying, growing and giving back pages. Knows nothing of queues or budgets.

In group 0 a row borrows the pages of its anchor's path and owns those from `Row.own_from` on; in sliding-window groups it
holds a reference to every page of its table, since the tree may give such pages away under it.
"""

from __future__ import annotations

from belady.core.cache import KvCache, Match
from belady.core.config import CoreConfig
from belady.core.draft import Draft
from belady.core.plan import NO_PAGE, NewPages, PageCopy, Trim
from belady.core.prefix_tree import KEY_BYTES
from belady.core.row import Row


class BlockTables:
    """Moves pages between pools, rows and the prefix tree, and drafts the deltas that say so."""

    def __init__(self, config: CoreConfig, cache: KvCache) -> None:
        self._config = config
        self._cache = cache
        self._windows = [(g, c.window) for g, c in enumerate(config.groups) if c.window is not None]

    def make(
        self, match: Match, usable: int, total: int, row: Row, draft: Draft, now: float
    ) -> list[list[int]] | None:
        """Block tables for the first `usable` tokens, shared, and in group 0 fresh pages up to `total` tokens. A partly
        filled page is copied. None and nothing taken when pages are short."""
        size, unit = self._config.page_size, self._config.key_tokens
        shared_pages, partial = divmod(usable, size)
        windows = dict(self._windows)
        tables: list[list[int]] = []
        copies: list[PageCopy] = []
        taken: list[tuple[int, list[int]]] = []
        for group in range(len(self._cache.pools)):
            path = self._cache.table(match.span, -(-usable // unit), group) if usable else []
            table = path[:shared_pages]
            want = (-(-total // size) if group not in windows else -(-usable // size)) - shared_pages
            if group in windows:
                # References before taking: a take may strip window pages of the very path.
                self._cache.pools[group].share(path)
                taken.append((group, [page for page in path if page != NO_PAGE]))
            fresh = self._cache.take(group, want, now)
            if fresh is None:
                for taken_group, pages in taken:
                    self._cache.pools[taken_group].release(pages)
                return None
            taken.append((group, fresh))
            if partial and fresh and path[shared_pages] != NO_PAGE:
                copies.append(PageCopy(group, path[shared_pages], fresh[0], partial))
            if group in windows and partial:
                self._cache.pools[group].release(path[shared_pages:])
            tables.append(table + fresh)
        draft.copies.extend((row, row.run, copy) for copy in copies)
        return tables

    def store(self, row: Row, tokens: int, now: float) -> int:
        """Give the KV of the first `tokens` tokens to the tree; returns how many of them the tree has."""
        anchor = row.anchor
        assert anchor is not None
        if not self._config.prefix_cache:
            return 0
        unit = self._config.key_tokens
        if unit > 1 and tokens < row.request.prompt_tokens:
            tokens = tokens // unit * unit
        keys = row.keys(tokens)
        count = len(keys) // KEY_BYTES
        if count <= anchor.end:
            return min(tokens, count * unit)
        request = row.request
        span, new_from = self._cache.insert(anchor, keys, row.tables, request.program, now, request.namespace)
        self._cache.pin(span)
        self._cache.unpin(anchor, now)
        row.anchor = span
        if new_from < count:
            # Earlier pages of ours were stored by somebody else meanwhile: duplicates, freed when the row ends.
            first = new_from // self._cache.page_keys
            assert first >= row.own_from
            row.duplicates.extend(row.tables[0][row.own_from : first])
            row.own_from = -(-count // self._cache.page_keys)
        if request.reuse:
            self._cache.annotate(span, request.reuse, now)
        return min(tokens, count * unit)

    def release(self, row: Row, now: float) -> None:
        """Give back everything the row holds: its pages and its pin."""
        for pool, pages in zip(self._cache.pools, self.held(row), strict=True):
            pool.release(pages)
        assert row.anchor is not None
        self._cache.unpin(row.anchor, now)
        row.anchor = None
        row.tables = []
        row.duplicates = []
        row.own_from = 0

    def held(self, row: Row) -> list[list[int]]:
        """Pages that the row holds a reference to, per group."""
        windowed = {group for group, _ in self._windows}
        return [row.page_list(group, group in windowed) for group in range(len(self._cache.pools))]

    def grow(self, row: Row, capacity: int, draft: Draft, now: float, *, trim: bool) -> bool:
        """One more page in every block table of a row that has room for `capacity` tokens. With `trim`, first give back
        the pages that have left the window of the token at `capacity` (not in a run of iterations: earlier ones still
        read them). False and nothing taken when pages are short."""
        size = self._config.page_size
        if trim:
            for group, window in self._windows:
                self._trim_window(row, group, max(0, capacity - window) // size, draft)
        got: list[list[int]] = []
        for group in range(len(row.tables)):
            pages = self._cache.take(group, 1, now)
            if pages is None:
                for taken_group, taken in enumerate(got):
                    self._cache.pools[taken_group].release(taken)
                return False
            got.append(pages)
        for group, pages in enumerate(got):
            row.tables[group].extend(pages)
            draft.pages.append((row, row.run, NewPages(row.rid, group, tuple(pages))))
        return True

    def grow_for_chunk(self, row: Row, start: int, count: int, draft: Draft, now: float) -> bool:
        """Group 0 holds the whole prompt since admission; window groups grow chunk by chunk."""
        if not self._windows:
            return True
        size = self._config.page_size
        want = -(-(start + count) // size)
        for group, window in self._windows:
            self._trim_window(row, group, max(0, start - window) // size, draft)
            table = row.tables[group]
            if want > len(table):
                pages = self._cache.take(group, want - len(table), now)
                if pages is None:
                    return False
                table.extend(pages)
                draft.pages.append((row, row.run, NewPages(row.rid, group, tuple(pages))))
        return True

    def fill_checkpoint(self, row: Row) -> None:
        """The row has just computed the window that the tree lacked at a branch: share it, so that the next request to
        branch here hits. (Where to keep state for reuse: Marconi, "Prefix Caching for the Era of Hybrid LLMs", 2024.)"""
        assert row.anchor is not None and row.checkpoint is not None
        self._cache.refill(row.anchor, row.checkpoint // self._config.key_tokens, row.tables)
        row.checkpoint = None

    def _trim_window(self, row: Row, group: int, upto: int, draft: Draft) -> None:
        table = row.tables[group]
        upto = min(upto, len(table))
        if upto == 0 or table[upto - 1] == NO_PAGE:
            return
        first = upto
        while first > 0 and table[first - 1] != NO_PAGE:
            first -= 1
        self._cache.pools[group].release(table[first:upto])
        table[first:upto] = [NO_PAGE] * (upto - first)
        draft.trims.append((row, row.run, Trim(row.rid, group, upto)))
