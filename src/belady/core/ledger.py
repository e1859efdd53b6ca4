"""Where every object lives: pages and bytes by tier, references, owners. Knows neither keys nor order of eviction.

KV pages are counted per layer group with a reference count each; everything else that has a size and can be reused
(adapters, experts, weight shards) is an `Entry`. KV runs are the spans of the prefix tree: one object a run, not a page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from belady.core.plan import NO_PAGE


class PagePool:
    """Physical pages of one layer group. Ids are 0..capacity-1; a page is free or has one or more references."""

    def __init__(self, pages: int) -> None:
        self.capacity = pages
        self._free = list(range(pages - 1, -1, -1))
        self._refs = array("i", bytes(4 * pages))
        self._retired: list[int] = []
        self._retiring = 0

    @property
    def free(self) -> int:
        """Pages that can be taken now."""
        return len(self._free)

    @property
    def used(self) -> int:
        return self.capacity - len(self._free)

    def take(self, count: int) -> list[int] | None:
        """`count` pages with one reference each, or None and no change."""
        free = self._free
        if count > len(free):
            return None
        if not count:
            return []
        pages = free[-count:]
        del free[-count:]
        refs = self._refs
        for page in pages:
            refs[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """One more reference for each page (`NO_PAGE` entries are skipped)."""
        refs = self._refs
        for page in pages:
            if page != NO_PAGE:
                assert refs[page] > 0, f"page {page} is free and cannot be shared"
                refs[page] += 1

    def release(self, pages: Iterable[int]) -> int:
        """One reference less for each page (`NO_PAGE` skipped); returns how many became free."""
        refs, free, freed = self._refs, self._free, 0
        for page in pages:
            if page == NO_PAGE:
                continue
            left = refs[page] - 1
            assert left >= 0, f"page {page} released more often than taken"
            refs[page] = left
            if not left:
                freed += 1
                free.append(page)
        if self._retiring and freed:
            self._retire()
        return freed

    def resize(self, pages: int) -> None:
        """Change the capacity. Growing reuses retired ids first; shrinking takes pages as they become free."""
        target_change = pages - (self.capacity - self._retiring)
        if target_change >= 0:
            back = min(target_change, self._retiring)
            self._retiring -= back
            self._grow(target_change - back)
        else:
            self._retiring += -target_change
            self._retire()

    def references(self, page: int) -> int:
        return self._refs[page]

    def check(self, held: Sequence[int]) -> None:
        """Compare with `held[page]` references counted by walking everything that holds pages."""
        assert list(held) == self._refs.tolist(), "page references differ from what spans and rows hold"
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        assert all(not self._refs[p] for p in free), "a free page has references"
        in_use = sum(1 for r in self._refs if r)
        assert in_use + len(self._free) == self.capacity, "pages are lost: used + free != capacity"

    @property
    def ids(self) -> int:
        """Number of page ids ever issued; executors size their tables by it."""
        return len(self._refs)

    def _grow(self, count: int) -> None:
        for _ in range(count):
            if self._retired:
                self._free.append(self._retired.pop())
            else:
                self._free.append(len(self._refs))
                self._refs.append(0)
        self.capacity += count

    def _retire(self) -> None:
        count = min(self._retiring, len(self._free))
        if count:
            self._retired.extend(self._free[-count:])
            del self._free[-count:]
            self._retiring -= count
            self.capacity -= count


@dataclass(slots=True)
class Entry:
    """An object other than KV: `tier` is where it lives, `pins` how many uses forbid moving it."""

    oid: str
    kind: str
    size: int
    tier: str
    owners: set[str] = field(default_factory=set)
    pins: int = 0


class LedgerError(RuntimeError):
    """A move or drop that the ledger forbids; says which object and why."""


class Ledger:
    """All page pools, and the objects of every tier with their bytes."""

    def __init__(self, pool_pages: Sequence[int], tiers: dict[str, int] | None = None) -> None:
        """`pool_pages[g]` pages for layer group g; `tiers` maps a tier's name to its capacity in bytes."""
        self.pools = tuple(PagePool(n) for n in pool_pages)
        self._capacity = dict(tiers or {})
        self._used = dict.fromkeys(self._capacity, 0)
        self._entries: dict[str, Entry] = {}

    def hold(self, entry: Entry) -> bool:
        """Record `entry` in its tier; False and no change when the tier lacks room."""
        if entry.oid in self._entries:
            raise LedgerError(f"object {entry.oid!r} is already held; move it instead")
        if not self._fits(entry.tier, entry.size):
            return False
        self._entries[entry.oid] = entry
        self._used[entry.tier] += entry.size
        return True

    def move(self, oid: str, tier: str) -> bool:
        """Move an unpinned object to `tier`; False and no change when it lacks room."""
        entry = self._unpinned(oid, "move")
        if not self._fits(tier, entry.size):
            return False
        self._used[entry.tier] -= entry.size
        self._used[tier] += entry.size
        entry.tier = tier
        return True

    def drop(self, oid: str) -> None:
        """Forget an unpinned object."""
        entry = self._unpinned(oid, "drop")
        self._used[entry.tier] -= entry.size
        del self._entries[oid]

    def pin(self, oid: str) -> None:
        self._entries[oid].pins += 1

    def unpin(self, oid: str) -> None:
        entry = self._entries[oid]
        assert entry.pins > 0, f"object {oid!r} unpinned more often than pinned"
        entry.pins -= 1

    def entries(self, tier: str) -> list[Entry]:
        """Objects of a tier, in the order they were held."""
        return [e for e in self._entries.values() if e.tier == tier]

    def used(self, tier: str) -> int:
        """Bytes held in `tier`."""
        return self._used[tier]

    def check(self) -> None:
        """Conservation of bytes per tier."""
        for tier, used in self._used.items():
            total = sum(e.size for e in self._entries.values() if e.tier == tier)
            assert total == used, f"tier {tier}: entries sum to {total} bytes, ledger says {used}"
            assert used <= self._capacity[tier], f"tier {tier} is over its capacity"

    def _fits(self, tier: str, size: int) -> bool:
        if tier not in self._capacity:
            raise LedgerError(f"unknown tier {tier!r}; the ledger has {', '.join(self._capacity) or 'none'}")
        return self._used[tier] + size <= self._capacity[tier]

    def _unpinned(self, oid: str, verb: str) -> Entry:
        entry = self._entries.get(oid)
        if entry is None:
            raise LedgerError(f"cannot {verb} object {oid!r}: the ledger does not hold it")
        if entry.pins:
            raise LedgerError(f"cannot {verb} object {oid!r}: {entry.pins} uses pin it")
        return entry
