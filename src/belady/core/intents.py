"""Intents, in the imperative: everything a policy may propose. The set is closed; the core disposes and answers.

An intent names a request or a program, never a page. What the core can do today is in `belady.core.dispose`; every other
verb is answered `rejected`, so that no proposal is lost in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verb(StrEnum):
    ADMIT = "admit"
    DEFER = "defer"
    PREEMPT = "preempt"
    """A running request gives its pages back and waits again."""
    REJECT = "reject"
    """A waiting request is turned away."""
    RETAIN = "retain"
    PIN = "pin"
    DEMOTE = "demote"
    PREFETCH = "prefetch"
    RELEASE = "release"
    """Nobody will use what only this program owns: it may go first."""
    SHARE = "share"
    CHECKPOINT = "checkpoint"
    ROUTE = "route"
    SCALE = "scale"
    SWAP = "swap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One proposal. `intent_id` comes back in the `HintOutcome` event; `reason` is for people."""

    intent_id: str
    verb: Verb
    rid: int | None = None
    program: str | None = None
    reason: str = ""
