"""Stop strings: the same answer however the text is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.text.stop import StopMatch, StopMatcher

LETTERS = st.text("ab", min_size=1, max_size=4)


def oracle(text: str, stops: list[str]) -> StopMatch | None:
    """First end, then longest, by trying every span."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if text[start:end] in stops:
                return StopMatch(text[start:end], start, end)
    return None


@given(
    text=st.text("abc", max_size=24), stops=st.lists(LETTERS, max_size=4), cuts=st.lists(st.integers(0, 24))
)
def test_equals_oracle_at_every_split(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    bounds = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    out = "".join(matcher.feed(text[a:b]) for a, b in itertools.pairwise(bounds)) + matcher.flush()
    expected = oracle(text, stops)
    assert matcher.match == expected
    assert out == (text if expected is None else text[: expected.start])


@given(text=st.text("abc", max_size=24), stops=st.lists(LETTERS, min_size=1, max_size=4))
def test_never_releases_what_becomes_part_of_a_match(text: str, stops: list[str]) -> None:
    matcher, out = StopMatcher(stops), ""
    for char in text:
        out += matcher.feed(char)
        assert text.startswith(out)
        if matcher.match is not None:
            assert len(out) == matcher.match.start
            return
    assert out + matcher.flush() == text


def test_holds_back_only_what_may_still_match() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.feed("hello\n") == "hello"
    assert matcher.feed("x\n\nUs") == "\nx"
    assert matcher.feed("ers") == "\n\nUsers"
    assert matcher.feed("\n\nUser: no") == ""
    assert matcher.match == StopMatch("\n\nUser:", 14, 21)
    assert matcher.feed("more") == "" and matcher.flush() == ""


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
