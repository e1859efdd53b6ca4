"""Next uses against looking at every later request."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from belady.core.forecast import NEVER
from belady.sim.workload.future import next_uses

PROMPTS = st.lists(
    st.tuples(st.sampled_from(["", "b"]), st.lists(st.integers(0, 2), max_size=8)), max_size=12
)


def _brute(order: list[tuple[str, list[int]]], number: int) -> list[float]:
    """Per key: the first later request of the namespace that shares the prefix up to it."""
    namespace, keys = order[number]
    return [
        next(
            (
                float(later)
                for later in range(number + 1, len(order))
                if order[later][0] == namespace and order[later][1][: at + 1] == keys[: at + 1]
            ),
            NEVER,
        )
        for at in range(len(keys))
    ]


@given(PROMPTS)
def test_every_key_is_told_when_it_is_next_used(order: list[tuple[str, list[int]]]) -> None:
    found = next_uses((namespace, array("i", keys).tobytes()) for namespace, keys in order)
    assert len(found) == len(order)
    for number, reuse in enumerate(found):
        spread: list[float] = []
        for entry in reuse:
            assert entry.upto > len(spread), "entries rise"
            spread += [entry.at] * (entry.upto - len(spread))
        spread += [NEVER] * (len(order[number][1]) - len(spread))
        assert spread == _brute(order, number)
        assert spread == sorted(spread)


def test_a_prompt_that_comes_again_is_used_whole() -> None:
    keys = array("i", range(5)).tobytes()
    first, second = next_uses([("", keys), ("", keys)])
    assert [(r.upto, r.at) for r in first] == [(5, 1.0)]
    assert all(r.at == NEVER for r in second)
