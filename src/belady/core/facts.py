"""Inbound facts, in the past tense: everything a driver may tell the core. The set is closed.

`at` is seconds on the driver's clock. Facts are data: applying them is the scheduler's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from belady.core.request import Request


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request reached the server."""

    at: float
    request: Request


@dataclass(frozen=True, slots=True)
class Aborted:
    """The client of a request went away, or an operator cancelled it."""

    at: float
    rid: int
    reason: str = "client"


@dataclass(frozen=True, slots=True)
class Stop:
    """A row ended by itself: its output is the first `output_tokens` sampled tokens, whatever came after."""

    rid: int
    output_tokens: int
    reason: str
    """`stop` (end-of-sequence token, stop id or stop string) or `error` (the executor failed this row alone)."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one plan did: one object of arrays, no per-token objects.

    `iterations` of the plan's `repeat` were run. `tokens` is iteration-major over the plan's `sampled` rows
    (`iterations * len(plan.sampled)` ids), or None where a simulation has no token values. A stop that Python finds
    late names an earlier output length; what was sampled behind it is ignored.
    """

    at: float
    step: int
    iterations: int
    tokens: array[int] | None
    stops: tuple[Stop, ...]
    seconds: float
    """Measured or modelled duration of the whole step."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A typed, versioned, advisory hint. Every hint is answered with a `HintOutcome` event."""

    at: float
    action_id: str
    action_type: str
    action_version: str
    payload: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow's shape: edges between programs or agents, `join` is `and` or `or` per target."""

    at: float
    workflow: str
    edges: tuple[tuple[str, str], ...]
    joins: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Distances:
    """Seconds until each owner's next request, from whoever simulates or plans them."""

    at: float
    etas: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ToolStarted:
    at: float
    program: str
    tool: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    at: float
    program: str
    tool: str


@dataclass(frozen=True, slots=True)
class ProgramClosed:
    """The program will send no further request; what only it owns will never be used again."""

    at: float
    program: str


@dataclass(frozen=True, slots=True)
class CopyDone:
    at: float
    copy: int


@dataclass(frozen=True, slots=True)
class CopyFailed:
    at: float
    copy: int
    reason: str


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """A layer group's pool now has `pages` pages. Shrinking takes effect as pages become free."""

    at: float
    group: int
    pages: int


Fact = (
    Arrived
    | Aborted
    | StepResult
    | Hint
    | Graph
    | Distances
    | ToolStarted
    | ToolFinished
    | ProgramClosed
    | CopyDone
    | CopyFailed
    | CapacityChanged
)
