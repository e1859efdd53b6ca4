from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.core.ledger import Entry, Ledger, LedgerError, PagePool


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "share", "release", "resize"]), st.integers(0, 9)), max_size=60
    )
)
def test_pool_conserves_pages(actions: list[tuple[str, int]]) -> None:
    pool = PagePool(8)
    held: list[int] = []
    for action, n in actions:
        if action == "take":
            pages = pool.take(n)
            assert (pages is None) == (n > pool.free + (len(pages) if pages else 0))
            held.extend(pages or [])
        elif action == "share" and held:
            pool.share([held[n % len(held)]])
            held.append(held[n % len(held)])
        elif action == "release" and held:
            pool.release([held.pop(n % len(held))])
        elif action == "resize":
            pool.resize(4 + n)
        counts = [0] * pool.ids
        for page in held:
            counts[page] += 1
        pool.check(counts)
    for page in held:
        pool.release([page])
    assert pool.free == pool.capacity


def test_shrinking_waits_for_pages_in_use() -> None:
    pool = PagePool(4)
    pages = pool.take(3)
    assert pages is not None
    pool.resize(2)
    assert (pool.capacity, pool.free) == (3, 0)
    pool.release(pages)
    assert (pool.capacity, pool.free) == (2, 2)
    pool.resize(5)
    assert (pool.capacity, pool.free) == (5, 5)


def test_tiers_count_bytes_and_respect_pins() -> None:
    ledger = Ledger([4], {"device": 100, "host": 1000})
    assert ledger.hold(Entry("a", "adapter", 80, "device", {"agent"}))
    assert not ledger.hold(Entry("b", "adapter", 30, "device"))
    ledger.pin("a")
    with pytest.raises(LedgerError, match="pin"):
        ledger.move("a", "host")
    ledger.unpin("a")
    assert ledger.move("a", "host")
    assert (ledger.used("device"), ledger.used("host")) == (0, 80)
    with pytest.raises(LedgerError, match="unknown tier"):
        ledger.move("a", "moon")
    ledger.drop("a")
    assert ledger.entries("host") == []
    ledger.check()
