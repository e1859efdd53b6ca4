"""The virtual driver: a heap of (time, priority, sequence) events over any number of replicas and a router.

Completions of a moment come before arrivals of the same moment; arrivals of one moment at one replica are fed together.
Between two events nothing happens, so a run of decode iterations is one jump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from belady.core.events import Event
from belady.core.facts import Arrived
from belady.core.paritylog import Output
from belady.core.plan import StepPlan
from belady.core.request import Request
from belady.core.scheduler import Scheduler
from belady.policy.route.view import RoutePolicy
from belady.sim.record import Recorder
from belady.sim.replica import Durations, Replica
from belady.sim.workload.base import Call, Source

_COMPLETION, _ARRIVAL = 0, 1


class Server:
    """A replica with the load that a router sees, kept up to date plan by plan."""

    def __init__(self, index: int, replica: Replica) -> None:
        self.index = index
        self.replica = replica
        self.pending_tokens = 0
        self._pending: dict[int, int] = {}
        self._requests: set[int] = set()
        replica.on_plan = self._on_plan

    @property
    def requests(self) -> int:
        """Requests routed here and not ended."""
        return len(self._requests)

    def probe(self, request: Request) -> int:
        """Prompt tokens of `request` cached here now."""
        return self.replica.scheduler.probe(request)

    def feed(self, fact: Arrived) -> None:
        request = fact.request
        self._requests.add(request.rid)
        self._set(request.rid, request.prompt_tokens)
        self.replica.feed(fact)

    def ended(self, rid: int) -> None:
        """A request of this server is over."""
        self._requests.discard(rid)
        self._set(rid, 0)

    def _on_plan(self, plan: StepPlan) -> None:
        for admit in plan.admits:
            request = admit.request
            self._set(request.rid, request.prompt_tokens + admit.generated - admit.reused)
        for prefill in plan.prefills:
            self._set(prefill.rid, self._pending.get(prefill.rid, 0) - prefill.count)

    def _set(self, rid: int, tokens: int) -> None:
        self.pending_tokens += tokens - self._pending.pop(rid, 0)
        if tokens:
            self._pending[rid] = tokens


class Simulation:
    """One run: `run` once, then read `recorder` and `servers`."""

    def __init__(
        self,
        schedulers: Sequence[Scheduler],
        durations: Durations,
        source: Source,
        router: RoutePolicy,
        *,
        depth: int = 2,
        request_seconds: float = 0.0,
    ) -> None:
        """`request_seconds`: what the API spends on a request before its replica sees it."""
        self.recorder = Recorder()
        self.now = 0.0
        self._outputs: dict[int, Output] = {}
        self.servers = [
            Server(i, Replica(scheduler, durations, self._outputs, depth))
            for i, scheduler in enumerate(schedulers)
        ]
        self._source = source
        self._router = router
        self._request_seconds = request_seconds
        self._heap: list[tuple[float, int, int, Server | Call]] = []
        self._sequence = 0
        self._scheduled: list[float | None] = [None] * len(self.servers)

    def run(self, advance: Callable[[int], None] = lambda done: None) -> None:
        """Until nothing is left to happen; `advance` is told how many more requests ended."""
        initial = iter(self._source.initial())
        self._push_calls(self._next(initial))
        heap = self._heap
        while heap:
            now, priority, _, item = heappop(heap)
            assert now >= self.now, "virtual time went back"
            if isinstance(item, Server):
                if item.replica.ends_at != now or self._scheduled[item.index] != now:
                    continue
                self.now = now
                self._scheduled[item.index] = None
                item.replica.complete()
                self._poll(item, advance)
            else:
                assert priority == _ARRIVAL
                self.now = now
                for server in self._arrivals(item, initial):
                    self._poll(server, advance)
            if now >= self.recorder.samples.due:
                self._sample()
        self._sample()

    def check_integrity(self) -> None:
        """Every replica's pages add up, nothing is in flight, and every request has ended in exactly one way."""
        for server in self.servers:
            assert server.replica.idle and not server.requests and not server.pending_tokens
            server.replica.scheduler.check_integrity()
        assert all(record.ended is not None for record in self.recorder.requests.values())
        assert not self._outputs, "a request ended and its output was kept"

    # -- arrivals --------------------------------------------------------------------------------------------------

    @staticmethod
    def _next(initial: Iterable[Call]) -> tuple[Call, ...]:
        for call in initial:
            return (call,)
        return ()

    def _push_calls(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._sequence += 1
            heappush(self._heap, (call.at + self._request_seconds, _ARRIVAL, self._sequence, call))

    def _arrivals(self, first: Call, initial: Iterable[Call]) -> list[Server]:
        """Route and feed all calls of this moment; returns the servers concerned, by index."""
        heap, now = self._heap, self.now
        touched: dict[int, Server] = {}
        call = first
        while True:
            self._push_calls(self._next(initial))
            server = self._admit(call)
            touched[server.index] = server
            if not heap or heap[0][0] != now or heap[0][1] != _ARRIVAL:
                return [touched[index] for index in sorted(touched)]
            item = heappop(heap)[3]
            assert isinstance(item, Call)
            call = item

    def _admit(self, call: Call) -> Server:
        request, servers = call.request, self.servers
        index = self._router.route(request, servers, self.now) if len(servers) > 1 else 0
        self._outputs[request.rid] = call.output
        self.recorder.arrived(request.rid, call.at, request.prompt_tokens, index)
        server = servers[index]
        server.feed(Arrived(self.now, request))
        return server

    # -- progress --------------------------------------------------------------------------------------------------

    def _poll(self, server: Server, advance: Callable[[int], None]) -> None:
        events = server.replica.poll(self.now)
        ends_at = server.replica.ends_at
        if ends_at is not None and self._scheduled[server.index] != ends_at:
            self._scheduled[server.index] = ends_at
            self._sequence += 1
            heappush(self._heap, (ends_at, _COMPLETION, self._sequence, server))
        if events:
            self._apply(server, events, advance)

    def _apply(self, server: Server, events: list[Event], advance: Callable[[int], None]) -> None:
        ended = self.recorder.apply(events)
        for rid in ended:
            server.ended(rid)
            del self._outputs[rid]
            self._push_calls(self._source.ended(rid, self.now))
        if ended:
            advance(len(ended))

    def _sample(self) -> None:
        schedulers = [server.replica.scheduler for server in self.servers]
        self.recorder.samples.add(
            self.now,
            sum(s.running for s in schedulers),
            sum(s.waiting for s in schedulers),
            sum(s.usage() for s in schedulers) / len(schedulers),
            sum(s.cached_tokens() for s in schedulers),
        )
