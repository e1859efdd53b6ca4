"""The real executor: applies plans to row state, runs the model, samples. One thread of its own.

Knows no text and takes no decisions. A row that stopped, or whose plan failed, is skipped until the core drops it.
"""

from __future__ import annotations

import queue
import threading
from array import array
from collections import deque
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from belady.core.clock import Clock
from belady.core.facts import Stop
from belady.core.plan import PageCopy, Prefill, StepPlan
from belady.engine.executor import Progress, RowLogprobs
from belady.engine.rows import Ints, Rows, Slots
from belady.engine.sampler import RowParams, Sampler
from belady.kernels.backend import Backend
from belady.kernels.batch import ForwardBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Sizes of row state."""

    groups: int
    page_size: int
    max_context: int
    vocab: int


class Runner:
    """See `belady.engine.executor.Executor`. The thread starts at construction and ends with `close`."""

    def __init__(self, backend: Backend, config: RunnerConfig, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._rows = Rows(config.groups, -(-config.max_context // config.page_size) + 1)
        self._sampler = Sampler(config.vocab, self._rows.capacity)
        self._page_size = config.page_size
        self._dead: set[int] = set()
        """Rids whose further tokens count for nothing."""
        self._plans: queue.SimpleQueue[StepPlan | None] = queue.SimpleQueue()
        self._submitted = 0
        self._cut = 0
        """The plan with this step number, and any before it, ends at its next iteration boundary."""
        self._changed = threading.Condition()
        self._progress: deque[Progress] = deque()
        self._woken = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="belady-runner", daemon=True)
        self._thread.start()

    # -- port ---------------------------------------------------------------------------------------------------

    def submit(self, plan: StepPlan) -> None:
        self._submitted = plan.step
        self._plans.put(plan)

    def collect(self, deadline: float | None) -> list[Progress]:
        timeout = None if deadline is None else self._clock.sleep_for(deadline)
        with self._changed:
            self._changed.wait_for(lambda: self._progress or self._woken or self._closed, timeout)
            self._woken = False
            ready = list(self._progress)
            self._progress.clear()
        return ready

    def interrupt(self) -> None:
        self._cut = self._submitted

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        self._plans.put(None)
        self._thread.join()

    # -- the runner's thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (plan := self._plans.get()) is not None and not self._closed:
            try:
                self._execute(plan)
            except Exception as error:
                self._dead.update(p.rid for p in plan.prefills)
                self._dead.update(plan.decodes)
                self._report(
                    Progress(step=plan.step, at=self._clock.now(), iteration=None, done=True, error=error)
                )

    def _report(self, progress: Progress) -> None:
        with self._changed:
            self._progress.append(progress)
            self._changed.notify()

    def _execute(self, plan: StepPlan) -> None:
        began = self._clock.now()
        self._apply(plan)
        sampled = plan.sampled
        for iteration in range(plan.repeat):
            if iteration and (self._cut >= plan.step or self._closed):
                self._report(Progress(step=plan.step, at=began, iteration=None, done=True))
                return
            tokens, stops, logprobs = self._iterate(plan, sampled)
            now = self._clock.now()
            done = bool(stops) or iteration + 1 == plan.repeat
            self._report(
                Progress(
                    step=plan.step,
                    at=now,
                    iteration=iteration,
                    tokens=array("i", tokens.tobytes()),
                    stops=stops,
                    logprobs=logprobs,
                    done=done,
                    seconds=now - began,
                )
            )
            if done:
                return
            began = now

    def _apply(self, plan: StepPlan) -> None:
        self._dead.difference_update(plan.drops)
        freed, entered = self._rows.apply(plan)
        for slot in freed:
            self._sampler.release(slot)
        self._sampler.reserve(self._rows.capacity)
        for slot, admit in entered:
            params = admit.request.params
            assert isinstance(params, RowParams), "the driver must put RowParams into Request.params"
            prompt = np.frombuffer(admit.request.prompt, np.int32)
            self._sampler.admit(slot, params, prompt, np.frombuffer(admit.output, np.int32))
        if plan.copies:
            self._copy(plan.copies)

    def _copy(self, copies: tuple[PageCopy, ...]) -> None:
        """In plan order; runs of copies within one group go down together."""
        for group, run in groupby(copies, lambda copy: copy.group):
            some = list(run)
            self._backend.copy_pages(
                group, [c.src for c in some], [c.dst for c in some], [c.slots for c in some]
            )

    def _iterate(
        self, plan: StepPlan, sampled: tuple[int, ...]
    ) -> tuple[Ints, tuple[Stop, ...], dict[int, RowLogprobs]]:
        """One forward pass and one draw; entries of dead rows stay 0."""
        tokens = np.zeros(len(sampled), np.int32)
        live = np.arange(len(sampled))
        if self._dead and not self._dead.isdisjoint(sampled):
            live = np.array([i for i, rid in enumerate(sampled) if rid not in self._dead], np.intp)
        batch, slots = self._batch(plan)
        if batch is None:
            return tokens, (), {}
        logits = self._backend.forward(batch)
        if not len(slots):
            return tokens, (), {}
        generated = self._rows.generated[slots]
        drawn = self._sampler.sample(logits, slots, generated)
        tokens[live] = drawn.tokens
        self._rows.last[slots] = drawn.tokens
        self._rows.generated[slots] += 1
        stops = []
        for i in np.flatnonzero(drawn.stopped | drawn.failed).tolist():
            rid = sampled[live[i]]
            self._dead.add(rid)
            if drawn.failed[i]:
                stops.append(Stop(rid, int(generated[i]), "error"))
            else:
                stops.append(Stop(rid, int(generated[i]) + 1, "stop"))
        logprobs = {sampled[live[i]]: row for i, row in drawn.logprobs.items()}
        return tokens, tuple(stops), logprobs

    def _batch(self, plan: StepPlan) -> tuple[ForwardBatch | None, Slots]:
        """The forward pass of one iteration and the slots that draw; advances positions."""
        rows, dead = self._rows, self._dead
        slots = rows.decode_slots(plan.decodes)
        chunks = plan.prefills
        if dead:
            if not dead.isdisjoint(plan.decodes):
                slots = rows.slots([rid for rid in plan.decodes if rid not in dead])
            chunks = tuple(p for p in chunks if p.rid not in dead)
        if chunks:
            return self._mixed_batch(chunks, slots)
        if not len(slots):
            return None, slots
        start = rows.position[slots]
        context = start + 1
        rows.position[slots] = context
        count = np.arange(len(slots) + 1, dtype=np.int32)
        batch = ForwardBatch(
            tokens=rows.last[slots],
            positions=start,
            row_start=count,
            context_len=context,
            block_tables=self._tables(slots, context),
            sample_rows=count[:-1],
        )
        return batch, slots

    def _mixed_batch(self, chunks: tuple[Prefill, ...], slots: Slots) -> tuple[ForwardBatch, Slots]:
        """Prefill chunks first, then decode rows, as results are ordered."""
        rows = self._rows
        first = rows.slots([p.rid for p in chunks])
        order = np.concatenate([first, slots])
        counts = np.array([p.count for p in chunks] + [1] * len(slots), np.int32)
        start = np.concatenate([np.array([p.start for p in chunks], np.int32), rows.position[slots]])
        context = start + counts
        rows.position[order] = context
        row_start = np.zeros(len(order) + 1, np.int32)
        np.cumsum(counts, out=row_start[1:])
        drawing = np.array(
            [i for i, p in enumerate(chunks) if p.samples] + list(range(len(chunks), len(order))), np.intp
        )
        parts = [self._chunk(slot, p.start, p.count) for slot, p in zip(first.tolist(), chunks, strict=True)]
        total = int(row_start[-1])
        batch = ForwardBatch(
            tokens=np.concatenate([*parts, rows.last[slots]]),
            positions=np.arange(total, dtype=np.int32) + np.repeat(start - row_start[:-1], counts),
            row_start=row_start,
            context_len=context,
            block_tables=self._tables(order, context),
            sample_rows=row_start[1:][drawing] - 1,
        )
        return batch, order[drawing]

    def _chunk(self, slot: int, start: int, count: int) -> Ints:
        sequence = self._rows.sequences[slot]
        assert sequence is not None and start + count <= len(sequence), "a prefill beyond its sequence"
        return sequence[start : start + count]

    def _tables(self, slots: Slots, context: Ints) -> tuple[Ints, ...]:
        """Block tables cut to the longest row."""
        width = -(-int(context.max()) // self._page_size)
        return tuple(table[slots, :width] for table in self._rows.tables)
