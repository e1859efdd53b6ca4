"""A page-exact stand-in for an executor: it remembers what every slot holds and checks every read.

The content of position i is the whole sequence up to i, so a wrong page, a stale slot or a copy too few is seen at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from belady.core.config import CoreConfig
from belady.core.events import Event, Finished, Refused
from belady.core.facts import Arrived, Fact, StepResult, Stop
from belady.core.pipeline import Pipeline
from belady.core.plan import NO_PAGE, StepPlan
from belady.core.request import Request
from belady.core.scheduler import Scheduler
from belady.core.view import AdvisePolicy
from belady.policy.registry import load


def keys(tokens: list[int]) -> bytes:
    return array("i", tokens).tobytes()


def request(rid: int, tokens: list[int], max_tokens: int = 4, **more: object) -> Request:
    return Request(rid=rid, prompt=keys(tokens), prompt_tokens=len(tokens), max_tokens=max_tokens, **more)  # type: ignore[arg-type]


class SlotMachine:
    """Applies plans to a model of page contents. `next_token(sequence)` is the deterministic model."""

    def __init__(self, config: CoreConfig, next_token: Callable[[list[int]], int]) -> None:
        self.config = config
        self.next_token = next_token
        self.slots: list[dict[tuple[int, int], int]] = [{} for _ in config.groups]
        self.tables: dict[int, list[list[int]]] = {}
        self.sequences: dict[int, list[int]] = {}
        self.sampled: dict[int, int] = {}
        self.computed_tokens = 0
        self.poisoned: set[int] = set()
        """Requests whose KV went wrong in a failed step: what they write is garbage from then on."""

    def apply(self, plan: StepPlan, iterations: int) -> array[int]:
        for rid in plan.drops:
            self.tables.pop(rid, None)
        for admit in plan.admits:
            rid = admit.request.rid
            self.tables[rid] = [list(t) for t in admit.tables]
            self.sequences[rid] = array("i", admit.request.prompt + admit.output).tolist()
            self.sampled[rid] = admit.generated
        for new in plan.pages:
            self.tables[new.rid][new.group].extend(new.pages)
        for trim in plan.trims:
            table = self.tables[trim.rid][trim.group]
            table[: trim.upto] = [NO_PAGE] * trim.upto
        for copy in plan.copies:
            for slot in range(copy.slots):
                self.slots[copy.group][copy.dst, slot] = self.slots[copy.group][copy.src, slot]
        out: array[int] = array("i")
        for _ in range(iterations):
            drawn = {}
            for chunk in plan.prefills:
                self._compute(chunk.rid, chunk.start, chunk.count)
                if chunk.samples:
                    drawn[chunk.rid] = self._draw(chunk.rid)
            for rid in plan.decodes:
                self._compute(rid, len(self.sequences[rid]) - 1, 1)
                drawn[rid] = self._draw(rid)
            out.extend(drawn[rid] for rid in plan.sampled)
        return out

    def _draw(self, rid: int) -> int:
        token = self.next_token(self.sequences[rid])
        self.sequences[rid].append(token)
        self.sampled[rid] += 1
        return token

    def _compute(self, rid: int, start: int, count: int) -> None:
        sequence = self.sequences[rid]
        assert start + count <= len(sequence)
        self.computed_tokens += count
        size = self.config.page_size
        poisoned = rid in self.poisoned
        hashes = self._hashes(sequence[: start + count]) if not poisoned else [-1] * (start + count)
        for group, table in enumerate(self.tables[rid]):
            window = self.config.groups[group].window
            slots = self.slots[group]
            for position in range(start, start + count):
                page = table[position // size]
                assert page != NO_PAGE, "writes to a page that left the window"
                slots[page, position % size] = hashes[position]
            # The first token of the chunk reads farthest back.
            lowest = 0 if window is None else max(0, start - window + 1)
            for position in range(lowest, start + count):
                page = table[position // size]
                assert page != NO_PAGE, f"request {rid} reads position {position}, which has no page"
                assert poisoned or slots[page, position % size] == hashes[position], (
                    f"request {rid} reads wrong KV at {position}"
                )

    @staticmethod
    def _hashes(sequence: list[int]) -> list[int]:
        out, value = [], 0
        for token in sequence:
            value = hash((value, token))
            out.append(value)
        return out


class Harness:
    """A scheduler, its pipeline and the slot machine, run with virtual step durations."""

    def __init__(
        self,
        config: CoreConfig,
        *,
        depth: int = 2,
        evict: str = "lru",
        next_token: Callable[[list[int]], int] | None = None,
        stop: Callable[[int, int], bool] | None = None,
        advise: AdvisePolicy | None = None,
    ) -> None:
        self.scheduler = Scheduler(config, evict=load("evict", evict), advise=advise)
        self.pipeline = Pipeline(self.scheduler, depth)
        self.machine = SlotMachine(config, next_token or (lambda seq: (sum(seq[-3:]) * 31 + len(seq)) % 1000))
        self.stop = stop or (lambda rid, count: False)
        self.now = 0.0
        self.flying: list[StepPlan] = []
        self.plans: list[StepPlan] = []
        self.events: list[Event] = []

    def submit(self, *requests: Request) -> None:
        for item in requests:
            self.feed(Arrived(self.now, item))

    def feed(self, fact: Fact) -> None:
        self.pipeline.feed(fact)
        self._poll()

    def advance(self, iterations: int | None = None, *, fail: bool = False) -> bool:
        """Complete the oldest plan in flight, or let it `fail` for all its rows; False when none is."""
        if not self.flying:
            return False
        plan = self.flying.pop(0)
        if fail:
            rids = {*plan.decodes, *(p.rid for p in plan.prefills)}
            self.machine.poisoned |= rids
            tokens = self.machine.apply(plan, 1)
            self.now += 0.01
            errors = tuple(Stop(rid, 0, "error") for rid in sorted(rids))
            self.pipeline.feed(StepResult(self.now, plan.step, 1, tokens, errors, 0.01))
            self._poll()
            return True
        limit = 1 if self.pipeline.interrupt else min(plan.repeat, iterations or plan.repeat)
        tokens: array[int] = array("i")
        stops: list[Stop] = []
        done = 0
        while done < limit and not stops:
            tokens += self._iteration(plan, first=done == 0)
            done += 1
            for rid in plan.sampled:
                count = self.machine.sampled[rid]
                if self.stop(rid, count) and rid not in self.stopped:
                    self.stopped.add(rid)
                    stops.append(Stop(rid, count, "stop"))
        self.now += 0.01 * done
        self.pipeline.feed(StepResult(self.now, plan.step, done, tokens, tuple(stops), 0.01 * done))
        self._poll()
        return True

    @property
    def stopped(self) -> set[int]:
        return self.__dict__.setdefault("_stopped", set())

    def _iteration(self, plan: StepPlan, *, first: bool) -> array[int]:
        if first:
            return self.machine.apply(plan, 1)
        return self.machine.apply(StepPlan(step=plan.step, decodes=plan.decodes), 1)

    def _poll(self) -> None:
        while (plan := self.pipeline.poll(self.now)) is not None:
            self.flying.append(plan)
            self.plans.append(plan)
        self.events.extend(self.pipeline.take_events())
        self.scheduler.check_integrity()

    def run(self, limit: int = 10_000) -> None:
        while self.advance():
            limit -= 1
            assert limit > 0, "the scheduler does not come to rest"

    def ends(self) -> dict[int, Finished | Refused]:
        out: dict[int, Finished | Refused] = {}
        for event in self.events:
            if isinstance(event, Finished | Refused):
                assert event.rid not in out, f"request {event.rid} ended twice"
                out[event.rid] = event
        return out
