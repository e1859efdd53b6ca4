"""The runner over a backend made of arithmetic: row state, dead rows, failures, interrupts."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from belady.core.client import Sampling
from belady.core.plan import Admit, NewPages, PageCopy, Prefill, StepPlan, Trim
from belady.core.request import Request
from belady.engine.clock import MonotonicClock
from belady.engine.executor import Progress
from belady.engine.runner import Runner, RunnerConfig
from belady.engine.sampler import RowParams
from belady.kernels.batch import ForwardBatch

VOCAB = 50


class SumBackend:
    """Keeps token ids in its pages; the next token is the sum of the row's tokens, as its block table finds them."""

    def __init__(self, pages: int = 40, page_size: int = 4) -> None:
        self.cells = np.zeros((1, pages, page_size), np.int64)
        self.page_size = page_size
        self.batches: list[ForwardBatch] = []
        self.nan_for: set[int] = set()
        """Sums whose logits are not numbers."""
        self.raises = False
        self.gate: threading.Semaphore | None = None

    @property
    def program(self) -> Any:
        raise AssertionError("the runner has no business with programs")

    def bytes_per_page(self, group: int, page_size: int) -> int:
        return 1

    def allocate(self, pages: Sequence[int], page_size: int) -> None:
        raise AssertionError("the runner allocates nothing")

    def copy_pages(self, group: int, src: Sequence[int], dst: Sequence[int], slots: Sequence[int]) -> None:
        for a, b, n in zip(src, dst, slots, strict=True):
            self.cells[group, b, :n] = self.cells[group, a, :n]

    def forward(self, batch: ForwardBatch) -> npt.NDArray[np.float32]:
        if self.gate is not None:
            self.gate.acquire()
        self.batches.append(batch)
        if self.raises:
            self.raises = False
            raise RuntimeError("out of luck")
        table, size = batch.block_tables[0], self.page_size
        sums = np.zeros(len(batch.tokens), np.int64)
        for row in range(len(table)):
            for i in range(batch.row_start[row], batch.row_start[row + 1]):
                at = batch.positions[i]
                self.cells[0, table[row, at // size], at % size] = batch.tokens[i]
                sums[i] = sum(self.cells[0, table[row, p // size], p % size] for p in range(at + 1)) % VOCAB
        wanted = sums[batch.sample_rows]
        logits = np.zeros((len(wanted), VOCAB), np.float32)
        logits[np.arange(len(wanted)), wanted] = 1.0
        logits[[s in self.nan_for for s in wanted.tolist()]] = np.nan
        return logits


def admit(
    rid: int,
    prompt: Sequence[int],
    pages: Sequence[int],
    *,
    reused: int = 0,
    output: Sequence[int] = (),
    stop_ids: tuple[int, ...] = (),
) -> Admit:
    params = RowParams(sampling=Sampling(max_tokens=99, temperature=0.0), seed=0, stop_ids=stop_ids)
    request = Request(
        rid=rid, prompt=array("i", prompt).tobytes(), prompt_tokens=len(prompt), max_tokens=99, params=params
    )
    return Admit(request, reused, (tuple(pages),), len(output), array("i", output).tobytes())


def follow(prompt: Sequence[int], count: int) -> list[int]:
    """What the backend makes of a prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % VOCAB)
    return tokens[len(prompt) :]


@pytest.fixture
def backend() -> SumBackend:
    return SumBackend()


@pytest.fixture
def runner(backend: SumBackend) -> Any:
    config = RunnerConfig(groups=1, page_size=4, max_context=64, vocab=VOCAB)
    runner = Runner(backend, config, MonotonicClock())
    yield runner
    if backend.gate is not None:
        backend.gate.release(1000)
    runner.close()


def finish(runner: Runner, plan: StepPlan) -> list[Progress]:
    """Submit and wait for the end of the plan."""
    runner.submit(plan)
    return wait(runner, plan.step)


def wait(runner: Runner, step: int) -> list[Progress]:
    got: list[Progress] = []
    while not got or not got[-1].done or got[-1].step != step:
        got += runner.collect(None)
    return [p for p in got if p.step == step]


def ids(progress: Sequence[Progress]) -> list[list[int]]:
    return [list(p.tokens) for p in progress if p.tokens is not None]


def test_chunks_decodes_and_repeats(runner: Runner) -> None:
    prompt, other = [1, 2, 3, 4, 5, 6], [9, 9]
    (first,) = finish(
        runner, StepPlan(1, admits=(admit(1, prompt, [3, 5]),), prefills=(Prefill(1, 0, 4, False),))
    )
    assert first.tokens is not None and not len(first.tokens) and first.done
    (second,) = finish(
        runner,
        StepPlan(
            2,
            admits=(admit(2, other, [7]),),
            prefills=(Prefill(1, 4, 2, True), Prefill(2, 0, 2, True)),
        ),
    )
    mine, theirs = follow(prompt, 6), follow(other, 6)
    assert list(second.tokens or []) == [mine[0], theirs[0]]
    third = finish(
        runner,
        StepPlan(3, decodes=(2, 1), repeat=4, pages=(NewPages(1, 0, (8,)), NewPages(2, 0, (9,)))),
    )
    assert ids(third) == [[theirs[i], mine[i]] for i in range(1, 5)]
    assert [p.iteration for p in third] == [0, 1, 2, 3]


def test_mixed_step_keeps_result_order(runner: Runner, backend: SumBackend) -> None:
    finish(runner, StepPlan(1, admits=(admit(1, [4, 4], [1]),), prefills=(Prefill(1, 0, 2, True),)))
    (got,) = finish(
        runner,
        StepPlan(
            2,
            admits=(admit(2, [1, 2, 3], [2]), admit(3, [5, 6, 7, 8, 9], [3, 4])),
            prefills=(Prefill(3, 0, 3, False), Prefill(2, 0, 3, True)),
            decodes=(1,),
        ),
    )
    assert list(got.tokens or []) == [6, follow([4, 4], 2)[1]]
    batch = backend.batches[-1]
    assert batch.row_start.tolist() == [0, 3, 6, 7] and batch.context_len.tolist() == [3, 3, 3]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1, 2, 2] and batch.sample_rows.tolist() == [5, 6]


def test_reuse_copies_and_resumes(runner: Runner) -> None:
    """A prefix of 6 tokens is shared: one whole page, and a copy of half a page; one row resumes with output."""
    prompt = [1, 2, 3, 4, 5, 6]
    finish(runner, StepPlan(1, admits=(admit(1, prompt, [3, 5]),), prefills=(Prefill(1, 0, 6, True),)))
    longer, output = [*prompt, 8], follow([*prompt, 8], 2)
    (got,) = finish(
        runner,
        StepPlan(
            2,
            admits=(admit(2, longer, [3, 6, 7], reused=6, output=output),),
            copies=(PageCopy(0, 5, 6, 2),),
            prefills=(Prefill(2, 6, 3, True),),
            drops=(1,),
        ),
    )
    assert list(got.tokens or []) == follow(longer, 3)[2:]


def test_stopped_rows_are_skipped_until_dropped(runner: Runner, backend: SumBackend) -> None:
    prompt = [1, 2]
    a, b, c = follow(prompt, 3)
    admits = (admit(1, prompt, [1, 2], stop_ids=(b,)), admit(2, prompt, [3, 4]))
    finish(runner, StepPlan(1, admits=admits, prefills=(Prefill(1, 0, 2, True), Prefill(2, 0, 2, True))))
    got = finish(runner, StepPlan(2, decodes=(1, 2), repeat=5))
    assert ids(got) == [[b, b]] and got[-1].done
    assert [(s.rid, s.output_tokens, s.reason) for s in got[0].stops] == [(1, 2, "stop")]
    (wasted,) = finish(runner, StepPlan(3, decodes=(1, 2)))
    assert list(wasted.tokens or [])[1] == c and wasted.stops == ()
    assert len(backend.batches[-1].tokens) == 1
    before = len(backend.batches)
    finish(runner, StepPlan(4, decodes=(1,), drops=(2,)))
    assert len(backend.batches) == before
    (again,) = finish(
        runner, StepPlan(5, drops=(1,), admits=(admit(1, prompt, [1]),), prefills=(Prefill(1, 0, 2, True),))
    )
    assert list(again.tokens or []) == [a]


def test_a_row_that_is_not_a_number_ends_alone(runner: Runner, backend: SumBackend) -> None:
    backend.nan_for = {3}
    (got,) = finish(
        runner,
        StepPlan(
            1,
            admits=(admit(1, [1, 2], [1]), admit(2, [2, 2], [2])),
            prefills=(Prefill(1, 0, 2, True), Prefill(2, 0, 2, True)),
        ),
    )
    assert [(s.rid, s.output_tokens, s.reason) for s in got.stops] == [(1, 0, "error")]
    assert list(got.tokens or [])[1] == 4 and got.error is None


def test_a_failing_plan_fails_its_rows_only(runner: Runner, backend: SumBackend) -> None:
    finish(runner, StepPlan(1, admits=(admit(1, [1, 2], [1]),), prefills=(Prefill(1, 0, 2, True),)))
    backend.raises = True
    (failed,) = finish(runner, StepPlan(2, decodes=(1,)))
    assert isinstance(failed.error, RuntimeError) and failed.done and failed.tokens is None
    (got,) = finish(
        runner,
        StepPlan(3, admits=(admit(2, [5], [2]),), prefills=(Prefill(2, 0, 1, True),), decodes=(1,)),
    )
    assert next(iter(got.tokens or [])) == 5 and len(backend.batches[-1].tokens) == 1


def test_interrupt_ends_a_run_at_a_boundary(runner: Runner, backend: SumBackend) -> None:
    finish(runner, StepPlan(1, admits=(admit(1, [1, 2], [1, 2]),), prefills=(Prefill(1, 0, 2, True),)))
    backend.gate = threading.Semaphore(2)
    runner.submit(StepPlan(2, decodes=(1,), repeat=6))
    got: list[Progress] = []
    while len(got) < 2:
        got += runner.collect(None)
    runner.interrupt()
    backend.gate.release(100)
    while not got[-1].done:
        got += runner.collect(None)
    assert 2 <= sum(p.iteration is not None for p in got) <= 3
    whole = finish(runner, StepPlan(3, decodes=(1,), repeat=2))
    assert [p.iteration for p in whole] == [0, 1]


def test_many_rows_grow_the_state(runner: Runner) -> None:
    count = 30
    (got,) = finish(
        runner,
        StepPlan(
            1,
            admits=tuple(admit(rid, [rid], [rid]) for rid in range(count)),
            prefills=tuple(Prefill(rid, 0, 1, True) for rid in range(count)),
        ),
    )
    assert list(got.tokens or []) == list(range(count))


def test_trims_may_concern_rows_that_just_entered(runner: Runner, backend: SumBackend) -> None:
    finish(
        runner,
        StepPlan(
            1,
            admits=(admit(1, [0] * 8, [1, 2, 3], reused=8, output=[5]),),
            trims=(Trim(1, 0, 1),),
            prefills=(Prefill(1, 8, 1, False),),
        ),
    )
    assert backend.batches[-1].block_tables[0].tolist() == [[-1, 2, 3]]


def test_close_is_idempotent_and_wakes(runner: Runner) -> None:
    runner.close()
    runner.close()
    assert runner.collect(None) == []
