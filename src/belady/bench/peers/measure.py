"""What is measured of an engine, the same for all of them: prompts, rates and times from the moments when tokens came.

Works on anything that generates greedily and says when each token was there. Starts nothing and compares nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from belady.bench.peers.environment import PeerError

Rows = Sequence[Sequence[float]]
"""Seconds from the call until each token was there, a row each prompt."""


class Engine(Protocol):
    """Token ids in, greedy token ids and their moments out; stop tokens are ignored."""

    def generate(
        self, prompts: list[list[int]], tokens: int
    ) -> tuple[list[list[int]], list[list[float]]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Lengths in tokens. `prefill`: the last of them is also the context at which one row decodes, and the prompt whose
    start is asked for again with another end of `changed` tokens."""

    prefill: tuple[int, ...] = (512, 2048)
    decode_prompt: int = 32
    decode: int = 64
    batches: tuple[int, ...] = (1, 8)
    context_decode: int = 24
    changed: int = 32


@dataclass(slots=True, kw_only=True)
class Round:
    """One turn: a value per metric, and ids that can be compared with another engine's."""

    values: dict[str, float] = field(default_factory=dict)
    ids: list[list[int]] = field(default_factory=list)


def first_token(rows: Rows) -> float:
    """Seconds until every row has its first token."""
    return max(row[0] for row in rows)


def decode_rate(rows: Rows) -> float:
    """Tokens per second of all rows together, from the moment when all of them have begun."""
    begin = first_token(rows)
    later = [at for row in rows for at in row if at > begin]
    if not later:
        raise PeerError("all tokens came at once, so they have no rate")
    return len(later) / (max(later) - begin)


def take_turn(engine: Engine, sizes: Sizes, prompt: Callable[[int], list[int]]) -> Round:
    """Every metric once. `prompt(n)` gives n tokens that no earlier prompt starts with."""
    done = Round()
    for length in sizes.prefill[:-1]:
        ids, times = engine.generate([prompt(length)], 1)
        done.values[f"prefill_{length}"] = length / first_token(times)
        done.ids += ids
    for batch in sizes.batches:
        ids, times = engine.generate([prompt(sizes.decode_prompt) for _ in range(batch)], sizes.decode)
        done.values[f"decode_{batch}"] = decode_rate(times)
        done.ids += ids
    long = sizes.prefill[-1]
    first = prompt(long)
    ids, times = engine.generate([first], sizes.context_decode)
    done.values[f"prefill_{long}"] = long / first_token(times)
    done.values[f"decode_at_{long}"] = decode_rate(times)
    done.ids += ids
    ids, times = engine.generate([first[: -sizes.changed] + prompt(sizes.changed)], 1)
    done.values[f"hit_{long}"] = first_token(times)
    done.ids += ids
    return done


def agreement(ours: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> float:
    """Share of tokens up to the first difference, over all rows."""
    assert [len(row) for row in ours] == [len(row) for row in reference], "rows of other lengths"
    equal = total = 0
    for mine, theirs in zip(ours, reference, strict=True):
        total += len(mine)
        for a, b in zip(mine, theirs, strict=True):
            if a != b:
                break
            equal += 1
    return equal / total


def first_agreement(ours: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> float:
    """Share of rows whose first token is the reference's: text gone wrong shows here, rounding hardly."""
    pairs = list(zip(ours, reference, strict=True))
    return sum(mine[0] == theirs[0] for mine, theirs in pairs) / len(pairs)
