"""The scheduler: facts and a time in, a plan and events out. One `step` is one engine iteration (or a run of them).

All changes to queues and pages happen here and in the cache it holds; it does not know whether time is real. Same
facts, same times, same policies: the same plans, whichever driver asks.

Chunked prefill and continuous batching share one token budget per step: decode rows come first, one token each, then
prefill chunks in order of admission, then new admissions (Sarathi-Serve, "Taming Throughput-Latency Tradeoff in LLM
Inference", 2024).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from belady.core.admission import Admission
from belady.core.budget import StepBudget
from belady.core.cache import KvCache
from belady.core.config import ConfigError, CoreConfig
from belady.core.cost import StepBatch, StepCost
from belady.core.crowd import Crowd
from belady.core.decodes import Decodes
from belady.core.dispose import dispose
from belady.core.draft import Draft, InFlight, kept
from belady.core.events import (
    Event,
    Finished,
    FinishReason,
    FirstToken,
    HintOutcome,
    Outcome,
    Preempted,
    Refused,
)
from belady.core.facts import Aborted, Arrived, CapacityChanged, Fact, Hint, ProgramClosed, StepResult
from belady.core.intents import Verb
from belady.core.plan import Prefill, StepPlan
from belady.core.queue import ArrivalOrder, WaitingQueue
from belady.core.request import Request
from belady.core.row import Phase, Row
from belady.core.tables import BlockTables
from belady.core.view import AdvisePolicy, EvictPolicy, OrderPolicy


class Scheduler:
    """Queues, running rows and the cache of one replica."""

    def __init__(
        self,
        config: CoreConfig,
        *,
        evict: EvictPolicy,
        order: OrderPolicy | None = None,
        advise: AdvisePolicy | None = None,
        cost: StepCost | None = None,
    ) -> None:
        if config.step_seconds is not None and cost is None:
            raise ConfigError("step_seconds: a time budget needs a cost model of the step")
        self.config = config
        self.cache = KvCache(config, evict)
        self._cost = cost
        self._advise = advise
        self._queue = WaitingQueue(order or ArrivalOrder())
        self._rows: dict[int, Row] = {}
        self._prefilling: dict[int, Row] = {}
        self._unstored: dict[int, Row] = {}
        self._decodes = Decodes()
        self._in_flight: deque[InFlight] = deque()
        self._drops: list[int] = []
        self._events: list[Event] = []
        self.cache.events = self._events
        self._tables = BlockTables(config, self.cache)
        self._admission = Admission(config, self.cache, self._tables)
        self._draft = Draft()
        self._blocked = False
        """The head of the queue found no room; only another head or an end can change that."""
        self._crowd = Crowd()
        self._mixed_priorities = False
        self._first_priority: int | None = None
        self._arrivals = 0
        self._step = 0
        self._now = 0.0

    # -- what drivers may read -----------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Requests that hold pages and get rows."""
        return len(self._prefilling) + len(self._decodes)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def usage(self) -> float:
        """Used share of the fullest pool, cached runs included."""
        return max(pool.used / pool.capacity if pool.capacity else 1.0 for pool in self.cache.pools)

    def cached_tokens(self) -> int:
        """Token slots of pages that the prefix tree holds."""
        return self.cache.cached_pages * self.config.page_size

    def probe(self, request: Request) -> int:
        """Prompt tokens that a request would find cached now; no side effect."""
        return min(
            self.cache.probe(request.namespace, request.prompt) * self.config.key_tokens,
            request.prompt_tokens,
        )

    def pending_tokens(self) -> int:
        """Prompt tokens of waiting and prefilling requests not computed yet: the load a router compares."""
        return sum(
            row.target - (row.computed if row.phase is Phase.PREFILL else 0)
            for row in self._rows.values()
            if row.phase in (Phase.WAITING, Phase.PREFILL)
        )

    def waiting_requests(self) -> list[Request]:
        return [row.request for row in self._rows.values() if row.phase is Phase.WAITING]

    def running_requests(self) -> list[Request]:
        return [row.request for row in self._rows.values() if row.live]

    # -- what intents may do (`belady.core.dispose`) -------------------------------------------------------------

    def find(self, rid: int) -> Row | None:
        """The state of an unfinished request."""
        return self._rows.get(rid)

    def preempt(self, row: Row) -> None:
        """Take a running request's pages back; it waits again."""
        self._preempt(row)

    def turn_away(self, row: Row, reason: str) -> None:
        """Refuse a waiting request."""
        self._leave_queue(row)
        del self._rows[row.rid]
        self._refuse(row.request, "rejected", reason or "turned away by policy")

    def close_program(self, program: str) -> int:
        """Forecast NEVER for what only `program` owns; returns the number of runs."""
        return self.cache.close_program(program, self._now)

    # -- one step ------------------------------------------------------------------------------------------------

    def step(self, facts: Sequence[Fact], now: float) -> StepPlan:
        """Apply what happened, decide what to do next.

        Mutates the scheduler; performs no I/O and reads no clock (`now` is seconds on the driver's clock).
        """
        self._now = now
        for fact in facts:
            self._apply(fact)
        if self._advise is not None:
            for intent in self._advise.propose(self, now):
                outcome, detail = dispose(intent, self)
                self._events.append(HintOutcome(now, intent.intent_id, outcome, detail))
        plan = self._plan()
        self._events = []
        self.cache.events = self._events
        return plan

    def _apply(self, fact: Fact) -> None:
        if isinstance(fact, StepResult):
            self._on_result(fact)
        elif isinstance(fact, Arrived):
            self._on_arrival(fact)
        elif isinstance(fact, Aborted):
            row = self._rows.get(fact.rid)
            if row is not None:
                reason = FinishReason.ERROR if fact.reason == "error" else FinishReason.ABORT
                self._finish(row, reason, self._output_count(row), fact.reason)
        elif isinstance(fact, ProgramClosed):
            self.close_program(fact.program)
        elif isinstance(fact, CapacityChanged):
            self._blocked = False
            self.cache.pools[fact.group].resize(fact.pages)
        elif isinstance(fact, Hint):
            # No policy acts on hints yet; each is still answered.
            known = fact.action_type in set(Verb)
            detail = "no_policy: none is configured for it" if known else f"unknown_type: {fact.action_type}"
            self._events.append(HintOutcome(self._now, fact.action_id, Outcome.REJECTED, detail))
        # Graphs, distances and tool times inform forecast policies; without one they change nothing.

    def _on_arrival(self, fact: Arrived) -> None:
        request = fact.request
        assert request.rid not in self._rows, f"request {request.rid} arrived twice"
        config = self.config
        room = min(
            pool.capacity for g, pool in enumerate(self.cache.pools) if config.groups[g].window is None
        )
        # One page of slack: a fully cached prompt needs a private copy of its last page.
        most = min(config.max_context, (room - 1) * config.page_size)
        limit = min(request.max_tokens, most - request.prompt_tokens)
        if request.prompt_tokens < 1 or request.max_tokens < 1:
            self._refuse(request, "empty", "a request needs at least one prompt token and one output token")
            return
        if limit < 1:
            what = "context window" if most == config.max_context else "KV cache"
            self._refuse(
                request,
                "too_long",
                f"{request.prompt_tokens} prompt tokens leave no room for output: the {what} holds {most} tokens",
            )
            return
        self._arrivals += 1
        if self._first_priority is None:
            self._first_priority = request.priority
        self._mixed_priorities = self._mixed_priorities or request.priority != self._first_priority
        row = Row(request, self._arrivals, fact.at, limit)
        self._rows[request.rid] = row
        self._queue.push(row)
        if self._queue.head() is row:
            self._blocked = False

    def _refuse(self, request: Request, reason: str, detail: str) -> None:
        self._events.append(Refused(self._now, request.rid, reason, detail))

    # -- results -------------------------------------------------------------------------------------------------

    def _on_result(self, result: StepResult) -> None:
        flight = self._in_flight.popleft()
        plan = flight.plan
        assert plan.step == result.step, f"result of step {result.step}, but step {plan.step} is next"
        assert 1 <= result.iterations <= plan.repeat
        if plan.repeat > 1:
            self._decodes.clock -= plan.repeat - result.iterations
            flight.ending = self._decodes.pop_ended()
        if result.tokens is not None:
            self._receive(flight, result.tokens.tolist(), result.iterations)
        failed = {stop.rid for stop in result.stops if stop.reason == "error"} if result.stops else ()
        for row, run, done in flight.chunks:
            if row.run == run and row.rid not in failed:
                row.confirmed = done
        for row in flight.firsts:
            if row.rid not in failed:
                self._on_prefilled(row)
        for stop in result.stops:
            row_or_none = self._rows.get(stop.rid)
            if row_or_none is not None:
                reason = FinishReason.ERROR if stop.reason == "error" else FinishReason.STOP
                self._finish(row_or_none, reason, stop.output_tokens, stop.reason)
        for row in flight.ending:
            if row.phase is Phase.ENDING:
                self._finish(row, FinishReason.LENGTH, row.generated, "")

    def _receive(self, flight: InFlight, tokens: list[int], iterations: int) -> None:
        rows = flight.firsts + flight.rows
        assert len(tokens) == iterations * len(rows), "the result has the wrong number of tokens"
        if iterations == 1:
            for row, token in zip(rows, tokens, strict=True):
                row.output.append(token)
        else:
            for index, row in enumerate(rows):
                row.output.extend(tokens[index :: len(rows)])

    def _on_prefilled(self, row: Row) -> None:
        if row.phase is Phase.DONE:
            return
        self._unstored.pop(row.rid, None)
        if not row.first_seen:
            row.first_seen = True
            self._events.append(FirstToken(self._now, row.rid))
        if row.phase is not Phase.WAITING:
            size = self.config.page_size
            self._tables.store(row, row.target // size * size, self._now)

    def _output_count(self, row: Row) -> int:
        """Output tokens whose values are known (planned ones where a simulation has none)."""
        if not row.first_seen:
            return len(row.output)
        return len(row.output) or self._decodes.generated(row)

    def _finish(self, row: Row, reason: FinishReason, output_tokens: int, detail: str) -> None:
        request = row.request
        if row.phase is Phase.WAITING:
            self._leave_queue(row)
        else:
            self._retire(row, output_tokens, keep=reason is not FinishReason.ERROR)
            row.phase = Phase.DONE
        self._crowd.ended(self.running)
        del self._rows[request.rid]
        self._events.append(
            Finished(
                self._now,
                request.rid,
                reason,
                request.prompt_tokens,
                output_tokens,
                row.cached or 0,
                row.preemptions,
                detail,
            )
        )

    def _leave_queue(self, row: Row) -> None:
        row.phase = Phase.DONE
        self._queue.discard(row)
        self._blocked = False  # it may have been the head that found no room

    def _retire(self, row: Row, output_tokens: int, *, keep: bool) -> int:
        """Take a row's pages back, storing what it computed when `keep`. Returns tokens of KV that were not kept."""
        if row.phase is Phase.DECODE:
            self._decodes.leave(row)
        elif row.phase is Phase.PREFILL:
            del self._prefilling[row.rid]
        self._unstored.pop(row.rid, None)
        # The last sampled token has no KV; a late stop leaves KV behind the end, which is not kept.
        valid = min(row.computed, row.request.prompt_tokens + max(0, output_tokens - 1))
        if row.confirmed < row.target:
            valid = min(valid, row.confirmed)
        lost = row.computed - (self._tables.store(row, valid, self._now) if keep else 0)
        self._tables.release(row, self._now)
        self._drops.append(row.rid)
        self._blocked = False
        return max(0, lost)

    # -- planning ------------------------------------------------------------------------------------------------

    def _plan(self) -> StepPlan:
        self._preempt_for_priority()
        if self._steady() and self._in_flight:
            # A run of iterations can stand in one plan, but only when nothing before it may still change its rows.
            return StepPlan(self._step, events=tuple(self._events))
        draft = self._draft
        repeat = self._plan_decodes(draft)
        decodes, rows, context = self._decodes.rids(), self._decodes.rows(), self._decodes.context()
        self._decodes.clock += repeat
        ending = self._decodes.pop_ended() if repeat == 1 else []
        if ending:
            self._blocked = False
        if repeat == 1:
            budget = StepBudget(self.config, self._cost, len(decodes), context)
            for row in list(self._prefilling.values()):
                self._plan_chunk(row, budget, draft)
            self._admit(budget, draft)
            if not (draft.prefills or decodes or self._in_flight) and self._prefilling:
                self._break_jam(budget, draft)
        return self._commit(draft, decodes, rows, context, repeat, ending)

    def _commit(
        self,
        draft: Draft,
        decodes: tuple[int, ...],
        rows: tuple[Row, ...],
        context: int,
        repeat: int,
        ending: list[Row],
    ) -> StepPlan:
        """Freeze the draft into a plan and remember what its result will mean."""
        if not decodes and not draft.prefills:
            # Nothing to run; deltas already drafted wait for the next plan.
            return StepPlan(self._step, events=tuple(self._events))
        self._draft = Draft()
        self._step += 1
        drops, self._drops = tuple(self._drops), []
        batch = [(p.count, p.start) for _, p in draft.prefills]
        chunks = [(row, row.run, p.start + p.count) for row, p in draft.prefills]
        firsts = tuple(row for row, p in draft.prefills if p.samples) if batch else ()
        ending.extend(row for row in firsts if row.phase is Phase.ENDING)
        plan = StepPlan(
            self._step,
            kept(draft.admits),
            tuple(p for _, p in draft.prefills) if batch else (),
            decodes,
            kept(draft.pages),
            kept(draft.copies),
            kept(draft.trims),
            drops,
            repeat,
            len(decodes) + sum(count for count, _ in batch),
            context,
            self._cost.seconds(StepBatch(len(decodes), context, batch)) if self._cost else None,
            tuple(self._events),
        )
        self._in_flight.append(InFlight(plan, rows, chunks, firsts, ending))
        return plan

    def _steady(self) -> bool:
        """Only decode rows, and nobody waits who could be admitted: the next plan may stand for many iterations."""
        return bool(self._decodes) and not self._prefilling and (self._blocked or not len(self._queue))

    def _plan_decodes(self, draft: Draft) -> int:
        """Pages for the decode rows' next iteration; returns the number of iterations this plan stands for."""
        if not self._decodes:
            return 1
        self._page_decodes(draft, self._decodes.clock + 1, must=True)
        return self._extend(draft) if self._steady() and not self._in_flight else 1

    def _extend(self, draft: Draft) -> int:
        ends = self._decodes.until_end()
        if ends is None:
            return 1
        most = min(self.config.max_repeat, ends)
        return self._page_decodes(draft, self._decodes.clock + most, must=False) - self._decodes.clock

    def _page_decodes(self, draft: Draft, upto: int, *, must: bool) -> int:
        """Give decode rows the pages they need for all iterations before `upto`; returns the iteration reached.

        When `must`, rows are preempted until the pages suffice.
        """
        while (due := self._decodes.pop_page(upto)) is not None:
            at, row = due
            size = self.config.page_size
            while row.phase is Phase.DECODE:
                capacity = len(row.tables[0]) * size
                if self._tables.grow(row, capacity, draft, self._now, trim=must):
                    self._decodes.need_page_at(row, capacity + size)
                    break
                if not must:
                    self._decodes.need_page_at(row, capacity)
                    return max(at, self._decodes.clock + 1)
                self._preempt(self._worst())
                self._crowd.outgrown(self.running)
        return upto

    def _plan_chunk(self, row: Row, budget: StepBudget, draft: Draft) -> None:
        """Plan the next prefill chunk of a row, if the budget and window pools allow one."""
        start = row.computed
        stop = row.target
        if row.checkpoint is not None:
            if start == row.checkpoint:
                if row.confirmed < start:
                    return  # a step that may still fail computed it: wait for the result
                self._tables.fill_checkpoint(row)
            elif start < row.checkpoint:
                stop = row.checkpoint
        count = budget.chunk(stop - start, start)
        while count > 0 and not self._tables.grow_for_chunk(row, start, count, draft, self._now):
            count //= 2
        if count <= 0:
            return
        done = start + count
        samples = done == row.target
        budget.spend(count, start)
        row.computed = done
        draft.prefills.append((row, Prefill(row.rid, start, count, samples)))
        if not samples:
            return
        del self._prefilling[row.rid]
        row.generated += 1
        if row.generated >= row.limit:
            row.phase = Phase.ENDING
            return
        self._decodes.join(row)
        self._decodes.need_page_at(row, len(row.tables[0]) * self.config.page_size)

    # -- admission -----------------------------------------------------------------------------------------------

    def _admit(self, budget: StepBudget, draft: Draft) -> None:
        if self._blocked:
            return
        deferred: list[Row] = []
        while budget.open:
            row = self._queue.head()
            if row is None:
                break
            if self._unsettled(row):
                break
            if self.running >= self._crowd.limit(self.config.max_running):
                self._blocked = True
                break
            if self._admission.shares_unfinished_prefill(row, self._unstored.values()):
                deferred.append(self._queue.pop())
                continue
            placed = self._admission.place(row, draft, self._now, alone=not self.running)
            if placed is None:
                self._blocked = True
                break
            self._events.append(placed)
            budget.spend_bytes(draft.copy_bytes(row, self.config))
            self._queue.pop()
            row.phase = Phase.PREFILL
            self._prefilling[row.rid] = self._unstored[row.rid] = row
            self._plan_chunk(row, budget, draft)
        for row in deferred:
            self._queue.push(row)

    def _unsettled(self, row: Row) -> bool:
        """A token of the row is still in flight from before its preemption."""
        return row.settle is not None and bool(self._in_flight) and self._in_flight[0].plan.step <= row.settle

    # -- preemption ----------------------------------------------------------------------------------------------

    def _preempt_for_priority(self) -> None:
        """A waiting request that found no room takes it from a running one of lower priority."""
        if not self._blocked or not self._mixed_priorities:
            return
        head = self._queue.head()
        if head is None or not self.running:
            return
        worst = self._worst()
        if worst.request.priority < head.request.priority:
            self._preempt(worst)

    def _worst(self) -> Row:
        """The running row to give way: lowest priority, then latest arrival."""
        rows = [*self._prefilling.values(), *self._decodes.rows()]
        return min(rows, key=lambda row: (row.request.priority, -row.seq))

    def _preempt(self, row: Row) -> None:
        lost = self._retire(row, self._output_count(row), keep=True)
        row.phase = Phase.WAITING
        row.preemptions += 1
        row.settle = self._in_flight[-1].plan.step if self._in_flight else None
        row.computed = 0
        self._queue.push(row)
        self._events.append(Preempted(self._now, row.rid, lost))

    def _break_jam(self, budget: StepBudget, draft: Draft) -> None:
        """Prefilling rows hold each other's sliding-window pages: let the later ones go until the first fits."""
        while not draft.prefills:
            rows = list(self._prefilling.values())
            best = max(rows, key=lambda row: (row.request.priority, -row.seq))
            if len(rows) > 1:
                self._preempt(min(rows, key=lambda row: (row.request.priority, -row.seq)))
            self._plan_chunk(best, budget, draft)
            assert draft.prefills or len(rows) > 1, "one request alone does not fit a sliding-window pool"

    def check_integrity(self) -> None:
        """Raise `AssertionError` unless every page reference is held by exactly the spans and rows that should."""
        held: list[list[int]] = [[] for _ in self.cache.pools]
        pins: dict[int, int] = {}
        for row in self._rows.values():
            for total, pages in zip(held, self._tables.held(row), strict=True):
                total.extend(pages)
            if row.anchor is not None:
                pins[id(row.anchor)] = pins.get(id(row.anchor), 0) + 1
        self.cache.check_integrity(held)
        for span in self.cache.tree:
            assert span.pins == pins.get(id(span), 0), f"span {span.oid} has {span.pins} pins"
        waiting = sum(1 for row in self._rows.values() if row.phase is Phase.WAITING)
        assert waiting == len(self._queue), f"{waiting} rows wait, the queue counts {len(self._queue)}"
