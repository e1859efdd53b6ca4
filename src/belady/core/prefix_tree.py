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

    `pages` packs the physical pages of each layer group in turn (int32), for page indices `start // p` to
    `(end - 1) // p`; `PrefixTree.pages` unpacks them. The first one also holds the keys before `start` that fall into
    it. Everything is packed in `bytes`, without containers, because a tree may have millions of spans. `pins` forbid eviction; an ancestor of a pinned span is safe
    because it has a child. Read-only for everybody but the tree and the cache.
    """

    __slots__ = (
        "children",
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

    def __init__(self, oid: int, parent: Span | None, key: bytes, start: int, pages: bytes) -> None:
        self.oid = oid
        self.parent = parent
        self.key = key
        self.start = start
        self.pages = pages
        self.children: dict[int, Span] | None = None
        self.pins = 0
        self.last_use = 0.0
        self.next_use: float | None = None
        self.owners: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Position behind the last key."""
        return self.start + len(self.key) // KEY_BYTES

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
        self._ghosts: dict[int, dict[int, int]] = {}
        """Per span: first key and length of runs evicted from behind it, the latest ones."""
        self._next_oid = 0
        self.spans = 0

    def root(self, namespace: str) -> Span:
        """The root of a namespace, made on first use."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Span(self._oid(), None, b"", 0, b"")
        return root

    def walk(self, root: Span, keys: bytes, at: int = 0) -> Walk:
        """Follow `keys` from byte offset `at` downwards from `root`, which covers exactly the keys before it.

        No side effect. Cost: one dictionary look-up and one memory comparison per span.
        """
        span = root
        while True:
            children = span.children
            child = children.get(int.from_bytes(keys[at : at + KEY_BYTES], "little")) if children else None
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
        upper.children = {first_key(span.key): span}
        parent.children[first_key(upper.key)] = upper
        self.spans += 1
        return upper

    def attach(self, parent: Span, key: bytes, pages: bytes) -> Span:
        """Add a child run behind `parent`; its first key must be new there."""
        span = Span(self._oid(), parent, key, parent.end, pages)
        first = first_key(key)
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
        count = self.page_count(span)
        freed = tuple(part.tolist() for part in self._parts(span, kept, count))
        cut = (end - span.start) * KEY_BYTES
        holder = span.parent if end == span.start else span
        self._remember(holder, first_key(span.key, cut), span.end - end + self._behind(span))
        if end == span.start:
            self._detach(span)
        else:
            span.pages = _pack(self._parts(span, 0, kept))
            span.key = span.key[:cut]
        return freed

    def ghost(self, span: Span, key: int) -> int:
        """Length in keys of the run starting with `key` that was evicted from behind `span`; 0 when none is known."""
        return self._ghosts.get(span.oid, {}).get(key, 0)

    def page_count(self, span: Span) -> int:
        """Pages that a span names in each layer group."""
        return (span.end - 1) // self.page_keys - span.start // self.page_keys + 1

    def pages(self, span: Span, group: int) -> array[int]:
        """A copy of the span's pages in one layer group."""
        size = len(span.pages) // self._groups
        return array("i", span.pages[group * size : (group + 1) * size])

    def put_pages(self, span: Span, group: int, pages: array[int]) -> None:
        """Replace the span's pages in one layer group by as many others."""
        assert len(pages) == self.page_count(span)
        size = 4 * len(pages)
        span.pages = span.pages[: group * size] + pages.tobytes() + span.pages[(group + 1) * size :]

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
            assert parent.children[first_key(span.key)] is span, "a child is filed under the wrong key"
            assert span.start == parent.end and span.end - span.start == len(span.key) // KEY_BYTES
            assert span.end > span.start, "an empty run"
            want = (span.end - 1) // self.page_keys - span.start // self.page_keys + 1
            assert len(span.pages) == 4 * want * self._groups, "a run has the wrong number of pages"
        assert count == self.spans, f"the tree has {count} spans, its counter says {self.spans}"

    def _cut(self, span: Span, cut: int, *, upper: bool) -> bytes:
        first = span.start // self.page_keys
        if upper:
            return _pack(self._parts(span, 0, (cut - 1) // self.page_keys - first + 1))
        return _pack(self._parts(span, cut // self.page_keys - first, self.page_count(span)))

    def _parts(self, span: Span, begin: int, end: int) -> list[array[int]]:
        """Pages number `begin` to `end` (exclusive) of a span, per group."""
        return [self.pages(span, group)[begin:end] for group in range(self._groups)]

    def _behind(self, span: Span) -> int:
        return max(self._ghosts.get(span.oid, {0: 0}).values())

    def _remember(self, span: Span, key: int, length: int) -> None:
        ghosts = self._ghosts.setdefault(span.oid, {})
        if span.children is None and span.parent is not None:
            ghosts.clear()  # what was trimmed before lies behind what is trimmed now
        ghosts[key] = length
        if len(ghosts) > _GHOSTS:
            del ghosts[next(iter(ghosts))]

    def _detach(self, span: Span) -> None:
        parent = span.parent
        assert parent is not None and parent.children is not None
        del parent.children[first_key(span.key)]
        if not parent.children:
            parent.children = None
        span.parent = None
        self._ghosts.pop(span.oid, None)
        self.spans -= 1

    def _oid(self) -> int:
        self._next_oid += 1
        return self._next_oid


def first_key(keys: bytes, at: int = 0) -> int:
    """The key at byte offset `at`."""
    return int.from_bytes(keys[at : at + KEY_BYTES], "little")


def _pack(parts: list[array[int]]) -> bytes:
    return b"".join(part.tobytes() for part in parts)


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
