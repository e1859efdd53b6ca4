"""The KV cache: prefix tree, page pools and eviction policy put together. Knows nothing of queues or steps.

Runs are shared by reference: a request that matches a prefix pins the deepest span of it, and since only unpinned
leaves are evictable, that protects the whole path. A partly filled last page is never shared for writing: the request
that goes on from there copies it.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from belady.core.config import CoreConfig
from belady.core.events import Event, Evicted, Stored
from belady.core.forecast import NEVER, Reuse
from belady.core.ledger import Ledger, PagePool
from belady.core.plan import NO_PAGE
from belady.core.prefix_tree import KEY_BYTES, PrefixTree, Span, common_bytes, first_key
from belady.core.view import EvictPolicy


@dataclass(slots=True)
class Match:
    """A pinned prefix: `span` covers exactly the first `keys` keys. `ghost_keys` more had been cached and evicted
    (at most: only their first key was compared)."""

    span: Span
    keys: int
    ghost_keys: int


class KvCache:
    """Match, store and evict KV runs; hand out pages."""

    def __init__(self, config: CoreConfig, policy: EvictPolicy) -> None:
        self.page_keys = config.page_size // config.key_tokens
        self.ledger = Ledger([g.pages for g in config.groups])
        self.tree = PrefixTree(self.page_keys, len(config.groups))
        self.events: list[Event] = []
        self.cached_pages = 0
        """Distinct pages of group 0 that the tree holds."""
        self._key_tokens = config.key_tokens
        self._windows = tuple(
            None if g.window is None else max(1, -(-g.window // config.key_tokens)) for g in config.groups
        )
        self._policy = policy
        # Spans that hold pages of a sliding-window group, least recently used first, per such group.
        self._window_spans: dict[int, OrderedDict[int, Span]] = {
            g: OrderedDict() for g, w in enumerate(self._windows) if w is not None
        }
        self._owned: dict[str, dict[int, Span]] = {}

    @property
    def pools(self) -> tuple[PagePool, ...]:
        return self.ledger.pools

    # -- looking up ---------------------------------------------------------------------------------------------

    def probe(self, namespace: str, keys: bytes) -> int:
        """Keys of the longest cached prefix. No side effect."""
        return self.tree.walk(self.tree.root(namespace), keys).keys

    def match(self, namespace: str, keys: bytes, owner: str | None, now: float) -> Match:
        """Find the longest cached prefix and pin it; the caller must `unpin` the span. Marks the path as used."""
        walk = self.tree.walk(self.tree.root(namespace), keys)
        span = walk.span
        if walk.partial is not None and walk.inside:
            span = self._split(walk.partial, walk.inside)
        total = len(keys) // KEY_BYTES
        ghost = 0
        if walk.keys < total:
            ghost = min(self.tree.ghost(span, first_key(keys, walk.keys * KEY_BYTES)), total - walk.keys)
        self._pin(span)
        self._touch(span, owner, now)
        return Match(span, walk.keys, ghost)

    def unpin(self, span: Span, now: float) -> None:
        """Give back one pin; an unpinned leaf becomes evictable."""
        assert span.pins > 0
        span.pins -= 1
        if span.evictable:
            self._policy.added(span, now)

    def usable_keys(self, match: Match, limit: int) -> int:
        """Longest prefix, at most `limit` keys of the match, for which every sliding-window group still holds the
        window before its end. A hit is the intersection over layer groups."""
        keys = min(match.keys, limit)
        for group, window in enumerate(self._windows):
            if window is not None:
                keys = self._window_fit(match.span, keys, group, window)
        return keys

    def table(self, span: Span, keys: int, group: int) -> list[int]:
        """Physical pages of group `group` for the first `keys` keys of the path down to `span`; pages before a sliding
        window are `NO_PAGE`."""
        p = self.page_keys
        count = -(-keys // p)
        out = array("i", [NO_PAGE]) * count
        window = self._windows[group]
        lowest = 0 if window is None else max(0, keys - window) // p
        filled = count
        node: Span | None = span
        while node is not None and node.parent is not None and filled > lowest:
            first = node.start // p
            if first < filled:
                begin = max(first, lowest)
                out[begin:filled] = self.tree.pages(node, group)[begin - first : filled - first]
                filled = begin
            node = node.parent
        return out.tolist()

    # -- storing ------------------------------------------------------------------------------------------------

    def insert(
        self,
        anchor: Span,
        keys: bytes,
        tables: Sequence[Sequence[int]],
        owner: str | None,
        now: float,
        namespace: str,
    ) -> tuple[Span, int]:
        """Store the run of `keys` behind `anchor`, which covers a prefix of them and stays pinned by the caller.

        `tables[g]` is the caller's block table. Pages of group 0 from `start // p` of the new span on pass to the tree;
        in sliding-window groups the tree takes references of its own. Returns the deepest span and the first key
        position that was new (the end when everything was stored already).
        """
        walk = self.tree.walk(anchor, keys, anchor.end * KEY_BYTES)
        span = walk.span
        if walk.partial is not None and walk.inside:
            span = self._split(walk.partial, walk.inside)
        total = len(keys) // KEY_BYTES
        if walk.keys == total:
            self._touch(span, owner, now)
            if span.evictable:
                self._policy.added(span, now)
            return span, total
        p = self.page_keys
        if self._window_spans:
            self.refill(span, walk.keys, tables)
        first, upto = walk.keys // p, -(-total // p)
        pages = [array("i", table[first:upto]) for table in tables]
        if span.evictable:
            self._policy.removed(span)
        packed = b"".join(part.tobytes() for part in pages)
        child = self.tree.attach(span, keys[walk.keys * KEY_BYTES :], packed)
        self.cached_pages += len(pages[0])
        for group in self._window_spans:
            self.pools[group].share(pages[group])
            self._window_spans[group][child.oid] = child
        self._touch(child, owner, now)
        if child.evictable:
            self._policy.added(child, now)
        tokens = (total - walk.keys) * self._key_tokens
        parent = span.oid if span.parent is not None else None
        self.events.append(Stored(now, child.oid, parent, walk.keys * self._key_tokens, tokens, namespace))
        return child, walk.keys

    def pin(self, span: Span) -> None:
        """Forbid eviction of a span, and so of its path."""
        self._pin(span)

    def refill(self, span: Span, keys: int, tables: Sequence[Sequence[int]]) -> None:
        """Give sliding-window pages that the path down to `span` has lost back to it, from a request's block tables
        that hold the window before position `keys`. The tree takes references of its own."""
        p = self.page_keys
        for group, spans in self._window_spans.items():
            window = self._windows[group]
            assert window is not None
            lowest, upto = max(0, keys - window) // p, -(-keys // p)
            table = tables[group]
            node: Span | None = span
            while node is not None and node.parent is not None and node.end > lowest * p:
                first = node.start // p
                pages = self.tree.pages(node, group)
                for index in range(max(first, lowest), min(first + len(pages), upto, len(table))):
                    if (
                        pages[index - first] == NO_PAGE
                        and table[index] != NO_PAGE
                        and (index + 1) * p <= keys
                    ):
                        pages[index - first] = table[index]
                        self.pools[group].share(table[index : index + 1])
                        spans[node.oid] = node
                self.tree.put_pages(node, group, pages)
                node = node.parent

    def annotate(self, span: Span, reuse: Sequence[Reuse], now: float) -> None:
        """Write next-use forecasts onto the path down to `span`, cutting runs where the forecast changes."""
        path: list[Span] = []
        node: Span | None = span
        while node is not None and node.parent is not None:
            path.append(node)
            node = node.parent
        path.reverse()
        index = 0
        for part in path:
            while index < len(reuse) and reuse[index].upto <= part.start:
                index += 1
            while index < len(reuse) and reuse[index].upto < part.end:
                upper = self._split(part, reuse[index].upto - part.start)
                upper.next_use = reuse[index].at
                index += 1
            part.next_use = reuse[index].at if index < len(reuse) else NEVER
            if part.evictable:
                self._policy.added(part, now)

    def close_program(self, program: str, now: float) -> int:
        """Nobody will use what only `program` owns: forecast NEVER. Returns the number of runs concerned."""
        closed = 0
        for span in self._owned.pop(program, {}).values():
            left = tuple(o for o in span.owners if o != program)
            span.owners = left
            if not left and span.parent is not None:
                span.next_use = NEVER
                closed += 1
                if span.evictable:
                    self._policy.added(span, now)
        return closed

    # -- pages --------------------------------------------------------------------------------------------------

    def take(self, group: int, count: int, now: float) -> list[int] | None:
        """`count` pages of a group, evicting as needed; None when even that is not enough (what was evicted stays so)."""
        pool = self.pools[group]
        if count > pool.free:
            self._make_room(group, count, now)
        return pool.take(count)

    def _make_room(self, group: int, count: int, now: float) -> None:
        pool = self.pools[group]
        if group in self._window_spans:
            self._strip(group, count)
        while pool.free < count:
            span = self._victim(group, now)
            if span is None:
                return
            self._trim(span, group, count - pool.free, now)

    def _victim(self, group: int, now: float) -> Span | None:
        """The policy's choice; for a sliding-window pool only a run that holds pages of it, else nothing is gained."""
        span = self._policy.victim(now)
        holders = self._window_spans.get(group)
        if holders is not None and (span is None or span.oid not in holders):
            span = next((held for held in holders.values() if held.evictable), None)
        if span is not None:
            assert isinstance(span, Span) and span.evictable, "a policy named a run that is not evictable"
        return span

    def _trim(self, span: Span, group: int, need: int, now: float) -> None:
        """Take pages from the tail of a leaf until `need` pages of `group` came free or the leaf is gone."""
        p = self.page_keys
        pages = held = self.tree.page_count(span)
        if group in self._window_spans:
            held -= self.tree.pages(span, group).count(NO_PAGE)
        drop = pages if held <= need else min(pages, need)
        end = max(span.start, ((span.end - 1) // p + 1 - drop) * p)
        tokens = (span.end - end) * self._key_tokens
        parent = span.parent
        if end == span.start:
            self._policy.removed(span)
            self._forget(span)
        freed = self.tree.trim(span, end)
        gone = end == span.start and span.parent is None
        # Of group 0 the tree is the only holder; a page that a split left in two runs goes with the second of them.
        self.cached_pages -= self.pools[0].release(freed[0])
        for pool, given in zip(self.pools[1:], freed[1:], strict=True):
            pool.release(given)
        self.events.append(Evicted(now, span.oid, tokens, gone))
        if gone and parent is not None and parent.evictable:
            self._policy.added(parent, now)

    def _strip(self, group: int, count: int) -> None:
        """Free window pages that only matter for a hit ending at an old inner boundary, oldest first. Running requests
        hold references of their own to the window they read."""
        pool = self.pools[group]
        spans = self._window_spans[group]
        for oid in list(spans):
            if pool.free >= count:
                return
            span = spans[oid]
            if span.evictable:
                continue  # its tail is the policy's to give away, whole pages of all groups at once
            pages = self.tree.pages(span, group)
            pool.release(pages)
            self.tree.put_pages(span, group, array("i", [NO_PAGE]) * len(pages))
            del spans[oid]

    # -- inner --------------------------------------------------------------------------------------------------

    def _pin(self, span: Span) -> None:
        if span.evictable:
            self._policy.removed(span)
        span.pins += 1

    def _split(self, span: Span, inside: int) -> Span:
        upper = self.tree.split(span, inside)
        if upper.end % self.page_keys:
            for group, pool in enumerate(self.pools):
                pool.share(self.tree.pages(upper, group)[-1:])
        for owner in upper.owners:
            self._owned.setdefault(owner, {})[upper.oid] = upper
        for spans in self._window_spans.values():
            if span.oid in spans:
                spans[upper.oid] = upper
        return upper

    def _touch(self, span: Span, owner: str | None, now: float) -> None:
        """Mark the path as used now, and as owned by `owner`."""
        node: Span | None = span
        while node is not None and node.parent is not None:
            node.last_use = now
            if owner is not None and owner not in node.owners:
                node.owners = (*node.owners, owner)
                self._owned.setdefault(owner, {})[node.oid] = node
                if node.next_use == NEVER:
                    node.next_use = None
            for spans in self._window_spans.values():
                if node.oid in spans:
                    spans.move_to_end(node.oid)
            node = node.parent

    def _forget(self, span: Span) -> None:
        for owner in span.owners:
            held = self._owned.get(owner)
            if held is not None:
                held.pop(span.oid, None)
                if not held:
                    del self._owned[owner]
        for spans in self._window_spans.values():
            spans.pop(span.oid, None)

    def _window_fit(self, span: Span, keys: int, group: int, window: int) -> int:
        p = self.page_keys
        have = self._present(span, keys, group)
        while keys > 0:
            lowest = max(0, keys - window) // p
            missing = next((i for i in range((keys - 1) // p, lowest - 1, -1) if not have[i]), None)
            if missing is None:
                return keys
            keys = missing * p
        return 0

    def _present(self, span: Span, keys: int, group: int) -> bytearray:
        """One flag per page index: the deepest span naming that page still holds it."""
        p = self.page_keys
        count = -(-keys // p)
        flags = bytearray(count)
        filled = count
        node: Span | None = span
        while node is not None and node.parent is not None:
            first = node.start // p
            held = self.tree.pages(node, group)
            for i in range(first, filled):
                flags[i] = held[i - first] != NO_PAGE
            filled = min(filled, first)
            node = node.parent
        return flags

    def common_keys(self, a: bytes, b: bytes) -> int:
        """Leading keys that two sequences share."""
        return common_bytes(a, 0, b) // KEY_BYTES

    def check_integrity(self, held: Sequence[Sequence[int]]) -> None:
        """Conservation: every page's references equal what spans and `held` (pages held by requests, per group) name."""
        self.tree.check()
        self.ledger.check()
        cached: set[int] = set()
        counts = [[0] * pool.ids for pool in self.pools]
        for span in self.tree:
            cached.update(self.tree.pages(span, 0))
            for group, count in enumerate(counts):
                for page in self.tree.pages(span, group):
                    if page != NO_PAGE:
                        count[page] += 1
        for count, extra in zip(counts, held, strict=True):
            for page in extra:
                count[page] += 1
        for pool, count in zip(self.pools, counts, strict=True):
            pool.check(count)
        assert len(cached) == self.cached_pages, f"tree: {len(cached)} pages, counter: {self.cached_pages}"
