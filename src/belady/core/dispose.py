"""A policy proposes, the core disposes: carries out the intents that can be, and answers each one.

Only what the core itself could do at this moment is done, so a bad policy can be slow but never wrong.
"""

from __future__ import annotations

from typing import Protocol

from belady.core.events import Outcome
from belady.core.intents import Intent, Verb
from belady.core.row import Phase, Row

Answer = tuple[Outcome, str]


class Powers(Protocol):
    """What disposing may do to a scheduler."""

    def find(self, rid: int) -> Row | None: ...

    def preempt(self, row: Row) -> None: ...

    def turn_away(self, row: Row, reason: str) -> None: ...

    def close_program(self, program: str) -> int: ...


def dispose(intent: Intent, powers: Powers) -> Answer:
    """Carry out one intent, or say why not."""
    if intent.verb is Verb.RELEASE:
        return _release(intent, powers)
    if intent.verb in (Verb.PREEMPT, Verb.REJECT):
        return _on_request(intent, powers)
    return Outcome.REJECTED, f"unsupported: {intent.verb}"


def _release(intent: Intent, powers: Powers) -> Answer:
    if intent.program is None:
        return Outcome.REJECTED, "release names a program"
    runs = powers.close_program(intent.program)
    return (
        (Outcome.ACCEPTED, f"{runs} runs")
        if runs
        else (Outcome.MISSING, "nothing that only this program owns")
    )


def _on_request(intent: Intent, powers: Powers) -> Answer:
    if intent.rid is None:
        return Outcome.REJECTED, f"{intent.verb} names a request"
    row = powers.find(intent.rid)
    if row is None:
        return Outcome.MISSING, "no such request"
    if intent.verb is Verb.PREEMPT:
        if not row.live:
            return Outcome.REJECTED, "the request is not running"
        powers.preempt(row)
        return Outcome.ACCEPTED, ""
    if row.phase is not Phase.WAITING:
        return Outcome.REJECTED, "the request is not waiting"
    powers.turn_away(row, intent.reason)
    return Outcome.ACCEPTED, ""
