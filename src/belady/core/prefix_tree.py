"""What is cached: a radix tree over runs of prefix keys, with boundaries at any key.

Knows nothing of free memory, order of eviction or time. Keys are int32, packed little-endian in `bytes`, so that a run
is compared in one memory comparison. Positions count keys from the start of the sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

KEY_BYTES = 4
_CHUNK = 1 << 13
_GHOSTS = 4096
"""How many evicted runs a span remembers, so that a lost hit can be explained."""


class Span:
    """A run of keys [start, end) of one path, the pages that hold its KV, and who uses it.

    `pages[g]` are the physical pages of layer group g for page indices `start // p` to `(end - 1) // p`. The first one
    also holds the keys before `start` that fall into it. `pins` forbid eviction; an ancestor of a pinned span is safe
    because it has a child. Read-only for everybody but the tree and the cache.
    """

    __slots__ = (
        "children",
        "end",
        "ghosts",
        "key",
        "last_use",
        "next_use",
        "oid",
        "owners",
        "pages",
        "parent",
        "pins",
        "start",
    )

    def __init__(
        self, oid: int, parent: Span | None, key: bytes, start: int, pages: tuple[array[int], ...]
    ) -> None:
        self.oid = oid
        self.parent = parent
        self.key = key
        self.start = start
        self.end = start + len(key) // KEY_BYTES
        self.pages = pages
        self.children: dict[bytes, Span] | None = None
        self.pins = 0
        self.last_use = 0.0
        self.next_use: float | None = None
        self.owners: tuple[str, ...] = ()
        self.ghosts: dict[bytes, int] | None = None
        """First key and length in keys of runs evicted from behind this span, the latest few."""

    @property
    def evictable(self) -> bool:
        """An unpinned leaf. Roots (no parent) never are."""
        return not self.pins and not self.children and self.parent is not None


class Walk:
    """How far a sequence of keys follows the tree: `span` is the last one entered, the first `inside` keys of the
    child `partial` match too. `keys` is the matched length."""

    __slots__ = ("inside", "keys", "partial", "span")

    def __init__(self, span: Span, keys: int, partial: Span | None, inside: int) -> None:
        self.span = span
        self.keys = keys
        self.partial = partial
        self.inside = inside


class PrefixTree:
    """One root per namespace. `page_keys` is the number of keys that one page holds."""

    def __init__(self, page_keys: int, groups: int) -> None:
        self.page_keys = page_keys
        self._groups = groups
        self._roots: dict[str, Span] = {}
        self._next_oid = 0
        self.spans = 0

    def root(self, namespace: str) -> Span:
        """The root of a namespace, made on first use."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Span(self._oid(), None, b"", 0, ())
        return root

    def walk(self, root: Span, keys: bytes, at: int = 0) -> Walk:
        """Follow `keys` from byte offset `at` downwards from `root`, which covers exactly the keys before it.

        No side effect. Cost: one dictionary look-up and one memory comparison per span.
        """
        span = root
        while True:
            children = span.children
            child = children.get(keys[at : at + KEY_BYTES]) if children else None
            if child is None:
                return Walk(span, at // KEY_BYTES, None, 0)
            run = child.key
            if keys.startswith(run, at):
                at += len(run)
                span = child
                continue
            inside = common_bytes(keys, at, run)
            return Walk(span, (at + inside) // KEY_BYTES, child, inside // KEY_BYTES)

    def split(self, span: Span, inside: int) -> Span:
        """Cut `span` after `inside` keys; returns the new upper half. `span` stays the lower half, so whoever holds it
        still covers the same path. A page that the cut falls into is named by both halves: the caller counts it."""
        assert 0 < inside < span.end - span.start
        parent = span.parent
        assert parent is not None and parent.children is not None
        cut = span.start + inside
        upper = Span(
            self._oid(), parent, span.key[: inside * KEY_BYTES], span.start, self._cut(span, cut, upper=True)
        )
        upper.last_use, upper.next_use, upper.owners = span.last_use, span.next_use, span.owners
        span.pages = self._cut(span, cut, upper=False)
        span.key = span.key[inside * KEY_BYTES :]
        span.start = cut
        span.parent = upper
        upper.children = {span.key[:KEY_BYTES]: span}
        parent.children[upper.key[:KEY_BYTES]] = upper
        self.spans += 1
        return upper

    def attach(self, parent: Span, key: bytes, pages: tuple[array[int], ...]) -> Span:
        """Add a child run behind `parent`; its first key must be new there."""
        span = Span(self._oid(), parent, key, parent.end, pages)
        first = key[:KEY_BYTES]
        if parent.children is None:
            parent.children = {first: span}
        else:
            assert first not in parent.children
            parent.children[first] = span
        self.spans += 1
        return span

    def trim(self, span: Span, end: int) -> tuple[list[int], ...]:
        """Shorten a leaf to [start, end), removing it when nothing is left; returns the pages given up per group."""
        assert not span.children and span.start <= end < span.end and span.parent is not None
        kept = 0 if end == span.start else (end - 1) // self.page_keys - span.start // self.page_keys + 1
        freed = tuple(pages[kept:].tolist() for pages in span.pages)
        cut = (end - span.start) * KEY_BYTES
        holder = span.parent if end == span.start else span
        behind = max(span.ghosts.values()) if span.ghosts else 0
        ghosts = {} if holder is span or holder.ghosts is None else holder.ghosts
        ghosts[span.key[cut : cut + KEY_BYTES]] = span.end - end + behind
        if len(ghosts) > _GHOSTS:
            del ghosts[next(iter(ghosts))]
        holder.ghosts = ghosts
        if end == span.start:
            self._detach(span)
        else:
            for pages in span.pages:
                del pages[kept:]
            span.key = span.key[:cut]
            span.end = end
        return freed

    def page_index(self, span: Span) -> int:
        """Index in a block table of the span's first page."""
        return span.start // self.page_keys

    def __iter__(self) -> Iterator[Span]:
        """All spans, parents first, roots excluded. For checks and reports only."""
        stack = list(self._roots.values())
        while stack:
            span = stack.pop()
            if span.parent is not None:
                yield span
            if span.children:
                stack.extend(span.children.values())

    def check(self) -> None:
        """Structure: links agree, runs are contiguous, page counts fit, no empty run."""
        count = 0
        for span in self:
            count += 1
            parent = span.parent
            assert parent is not None and parent.children is not None
            assert parent.children[span.key[:KEY_BYTES]] is span, "a child is filed under the wrong key"
            assert span.start == parent.end and span.end - span.start == len(span.key) // KEY_BYTES
            assert span.end > span.start, "an empty run"
            want = (span.end - 1) // self.page_keys - span.start // self.page_keys + 1
            assert len(span.pages) == self._groups
            assert all(len(pages) == want for pages in span.pages), "a run has the wrong number of pages"
        assert count == self.spans, f"the tree has {count} spans, its counter says {self.spans}"

    def _cut(self, span: Span, cut: int, *, upper: bool) -> tuple[array[int], ...]:
        first = span.start // self.page_keys
        if upper:
            upto = (cut - 1) // self.page_keys - first + 1
            return tuple(pages[:upto] for pages in span.pages)
        begin = cut // self.page_keys - first
        return tuple(pages[begin:] for pages in span.pages)

    def _detach(self, span: Span) -> None:
        parent = span.parent
        assert parent is not None and parent.children is not None
        del parent.children[span.key[:KEY_BYTES]]
        if not parent.children:
            parent.children = None
        span.parent = None
        self.spans -= 1

    def _oid(self) -> int:
        self._next_oid += 1
        return self._next_oid


def common_bytes(keys: bytes, at: int, run: bytes) -> int:
    """Bytes, a multiple of a key, that `keys[at:]` and `run` share from their starts."""
    limit = min(len(run), len(keys) - at)
    done = 0
    while done < limit:
        size = min(_CHUNK, limit - done)
        mine, theirs = keys[at + done : at + done + size], run[done : done + size]
        if mine != theirs:
            differ = int.from_bytes(mine, "little") ^ int.from_bytes(theirs, "little")
            lowest = (differ & -differ).bit_length() - 1
            return done + lowest // (8 * KEY_BYTES) * KEY_BYTES
        done += size
    return limit
