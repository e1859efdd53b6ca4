"""The executor of a simulation: how far each row is, and when it stops by itself. The one place that knows outputs.

Every decoding row draws one token per iteration, so one counter of iterations serves them all, and the iteration at
which a row stops waits in a heap: an iteration costs work for the rows to which something happens, not for all rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from heapq import heappop, heappush

from belady.core.facts import Stop
from belady.core.paritylog import Output
from belady.core.plan import StepPlan


class _Row:
    """`generated` output tokens when the counter stood at `joined` (of a prefilling row: before its prefill)."""

    __slots__ = ("generated", "joined", "output", "rid")

    def __init__(self, rid: int, output: Output, generated: int) -> None:
        self.rid = rid
        self.output = output
        self.generated = generated
        self.joined = 0


class Rows:
    """Rows of one replica, advanced plan by plan in order of execution."""

    def __init__(self, outputs: Mapping[int, Output]) -> None:
        self._outputs = outputs
        self._rows: dict[int, _Row] = {}
        self._clock = 0
        self._stops: list[tuple[int, int, int, _Row]] = []
        self._pushed = 0
        """Sequence number of heap entries: a row that was preempted may be due again with its former self."""

    def begin(self, plan: StepPlan) -> None:
        """Apply the deltas of a plan that starts to run."""
        rows = self._rows
        for rid in plan.drops:
            rows.pop(rid, None)
        for admit in plan.admits:
            rid = admit.request.rid
            rows[rid] = _Row(rid, self._outputs[rid], admit.generated)

    def iterations(self, plan: StepPlan) -> int:
        """How many iterations a plan that has begun runs without an interrupt: until its first row stops, at most
        `repeat`."""
        heap = self._stops
        while plan.repeat > 1 and heap:
            due, rid, _, row = heap[0]
            if self._rows.get(rid) is row and rid in plan.decodes:
                return min(plan.repeat, due - self._clock)
            heappop(heap)
        return plan.repeat

    def finish(self, plan: StepPlan, iterations: int) -> tuple[array[int] | None, tuple[Stop, ...]]:
        """Count `iterations` of a plan as done; the tokens drawn (iteration-major, None without values) and the stops,
        both in the order of `plan.sampled`."""
        tokens = self._tokens(plan, iterations)
        if plan.decodes:
            self._clock += iterations
        stops = []
        for prefill in plan.prefills:
            if prefill.samples and (stop := self._first_token(prefill.rid)) is not None:
                stops.append(stop)
        heap = self._stops
        if heap and heap[0][0] <= self._clock:
            stops.extend(self._decode_stops(plan))
        return tokens, tuple(stops)

    def _decode_stops(self, plan: StepPlan) -> list[Stop]:
        """Rows of the plan that drew their last token now; entries of rows that had left are dropped."""
        heap, found = self._stops, []
        while heap and heap[0][0] <= self._clock:
            _, rid, _, row = heappop(heap)
            if self._rows.get(rid) is row and rid in plan.decodes:
                assert row.output.length is not None
                found.append(Stop(rid, row.output.length, "stop"))
        if len(found) > 1:
            found.sort(key=lambda stop: plan.decodes.index(stop.rid))
        return found

    def _first_token(self, rid: int) -> Stop | None:
        """A prefill ended and drew a token: the row decodes from the next plan on."""
        row = self._rows[rid]
        row.generated += 1
        row.joined = self._clock
        length = row.output.length
        if length is None:
            return None
        if row.generated == length:
            return Stop(rid, length, "stop")
        if row.generated < length:
            self._pushed += 1
            heappush(self._stops, (self._clock + length - row.generated, rid, self._pushed, row))
        return None

    def _tokens(self, plan: StepPlan, iterations: int) -> array[int] | None:
        sampled = plan.sampled
        if not sampled or self._rows[sampled[0]].output.tokens is None:
            return None
        columns = []
        finishing = {p.rid for p in plan.prefills}
        for rid in sampled:
            row = self._rows[rid]
            values = row.output.tokens
            assert values is not None, "token values exist for every request of a run or for none"
            at = row.generated if rid in finishing else row.generated + self._clock - row.joined
            columns.append([values[(at + i) % len(values)] for i in range(iterations)])
        return array("i", [token for iteration in zip(*columns, strict=True) for token in iteration])
