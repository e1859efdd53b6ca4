"""Closed loops: programs whose next call waits for the answer to the one before, plus the time to think or run a tool.

Knows no file format. At most `concurrent` programs (with their children) are under way; when one ends, the next starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from belady.sim.workload.base import Call, Limits


@dataclass(slots=True)
class Child:
    """A sub-agent that starts `delay` seconds after a call of its parent has ended; the parent's next call waits for it
    when `joined`."""

    delay: float
    script: Script
    joined: bool


@dataclass(slots=True)
class Turn:
    """One call of a program and what happens after it has ended.

    `think` seconds lie between that end (or, when children are joined, the end of the last of them) and the next call.
    """

    make: Callable[[int, float], Call]
    """Builds the call from a request id and its time."""
    think: float = 0.0
    children: Sequence[Child] = ()


class Script(Protocol):
    """The turns of one program, in order, made when they are needed."""

    def turns(self) -> Iterator[Turn]: ...


@dataclass(slots=True)
class _Run:
    """A program under way. `waits` counts what must end before its next call."""

    turns: Iterator[Turn]
    root: _Root
    parent: _Run | None = None
    joined: bool = False
    turn: Turn | None = None
    waits: int = 0


@dataclass(slots=True)
class _Root:
    """A top-level program with all its descendants: how many of them are still under way."""

    live: int = 0


@dataclass(slots=True)
class ClosedLoop:
    """Runs `scripts`: the first `concurrent` at their `starts`, each later one as an earlier one ends.

    With `concurrent` None all start at their `starts`, which must be as many as the scripts, rising.
    """

    scripts: Sequence[Script]
    starts: Sequence[float]
    limits: Limits
    concurrent: int | None = None
    total: int | None = None
    stated: Sequence[str] = ()
    _runs: dict[int, _Run] = field(default_factory=dict)
    _next_rid: int = 0
    _next_script: int = 0

    def initial(self) -> Iterator[Call]:
        """First calls of the programs that start by themselves, in time order."""
        for at in self.starts[: self.concurrent]:
            if self._next_script < len(self.scripts):
                yield from self._launch(at)

    def ended(self, rid: int, now: float) -> Sequence[Call]:
        """The calls that waited for request `rid`."""
        run = self._runs.pop(rid)
        turn = run.turn
        assert turn is not None
        calls: list[Call] = []
        for child in turn.children:
            run.waits += child.joined
            calls += self._begin(child.script, run.root, now + child.delay, run, child.joined)
        return calls + self._settle(run, now)

    def notes(self) -> list[str]:
        return [*self.stated, *self.limits.notes()]

    def _launch(self, at: float) -> list[Call]:
        script = self.scripts[self._next_script]
        self._next_script += 1
        return self._begin(script, _Root(), at, None, False)

    def _begin(self, script: Script, root: _Root, at: float, parent: _Run | None, joined: bool) -> list[Call]:
        root.live += 1
        run = _Run(script.turns(), root, parent, joined)
        run.waits = 1
        return self._settle(run, at)

    def _settle(self, run: _Run, now: float) -> list[Call]:
        """One thing that `run` waited for has ended; send its next call when it was the last, or end the program."""
        run.waits -= 1
        if run.waits:
            return []
        think = run.turn.think if run.turn is not None else 0.0
        turn = run.turn = next(run.turns, None)
        if turn is None:
            return self._close(run, now)
        run.waits = 1
        rid = self._next_rid
        self._next_rid += 1
        self._runs[rid] = run
        return [turn.make(rid, now + think)]

    def _close(self, run: _Run, now: float) -> list[Call]:
        calls: list[Call] = []
        if run.parent is not None and run.joined:
            calls += self._settle(run.parent, now)
        run.root.live -= 1
        if run.root.live == 0 and self.concurrent is not None and self._next_script < len(self.scripts):
            calls += self._launch(now)
        return calls
