"""Outbound events: what the core did. Metrics, KV events, traces and reports are translations of this closed set.

Events are per request or per cached run of tokens, never per token. `at` is the `now` of the step that emitted them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Loss(StrEnum):
    """Why matched or formerly cached tokens were not reused. A hit rate of zero is never silent."""

    LAST_TOKEN = "last_token"
    """The last prompt token is always computed, since its logits are wanted."""
    WINDOW = "window"
    """A sliding-window group no longer holds the tokens before this position."""
    EVICTED = "evicted"
    """The prefix had been cached and was evicted."""
    NO_ROOM = "no_room"
    """The pages needed to use the match (a copy of a partly filled page) were not to be had."""


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Outcome(StrEnum):
    """How a hint or intent was answered."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"
    DEFERRED = "deferred"
    REJECTED = "rejected"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request was given its pages. Token counts: `matched` by the tree, `usable` after alignment and windows,
    `loaded` from a colder tier, `replayed` = matched but computed again; `losses` says why, reason by reason."""

    at: float
    rid: int
    prompt_tokens: int
    matched: int
    usable: int
    loaded: int
    replayed: int
    losses: tuple[tuple[Loss, int], ...]
    resumed: bool
    """True when the request had been preempted before."""
    waited: float = 0.0
    """Seconds since it arrived."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    at: float
    rid: int


@dataclass(frozen=True, slots=True)
class Finished:
    at: float
    rid: int
    reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request can never run (`detail` says what to change), or policy turned it away."""

    at: float
    rid: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Object `oid` now caches tokens [start, start + tokens) of the path whose previous object is `parent`."""

    at: float
    oid: int
    parent: int | None
    start: int
    tokens: int
    namespace: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Object `oid` reached `tier` from a colder one."""

    at: float
    oid: int
    tier: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Demoted:
    at: float
    oid: int
    tier: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Evicted:
    """The last `tokens` tokens of object `oid` left the device; `gone` when nothing of it remains."""

    at: float
    oid: int
    tokens: int
    gone: bool


@dataclass(frozen=True, slots=True)
class Preempted:
    """A running request gave back its pages and waits again; `lost` tokens of KV were not kept in the tree."""

    at: float
    rid: int
    lost: int


@dataclass(frozen=True, slots=True)
class HintOutcome:
    at: float
    action_id: str
    outcome: Outcome
    detail: str


Event = (
    Scheduled
    | FirstToken
    | Finished
    | Refused
    | Stored
    | Loaded
    | Demoted
    | Evicted
    | Preempted
    | HintOutcome
)
