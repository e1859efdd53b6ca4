"""`serve`: the real engine on a real model, against `transformers` generate on the same weights in the same run.

Both sides get the same token ids and threads, take turns within each repeat, and are compared by their medians. The
engine is driven in process through the interface that the HTTP server uses. Greedy, stop tokens ignored.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from belady.bench.experiment import BenchError, Note
from belady.bench.machine import usable_cores
from belady.core.client import EngineError, Generate, Sampling
from belady.report.bench_json import Result, compared

if TYPE_CHECKING:
    from belady.bench.serve_baseline import Baseline
    from belady.engine.engine import Engine

CLAIM = "the engine serves a real model, and a cached prefix makes the first token come sooner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Lengths in tokens. `model`: as for `belady serve` (None: the default model). `changed_tokens` end the prompt
    whose other tokens are cached. `threads` None: all cores that this process may use."""

    model: str | None = None
    threads: int | None = None
    prefill_tokens: int = 512
    decode_prompt_tokens: int = 64
    decode_tokens: int = 64
    batches: tuple[int, ...] = (1, 8)
    long_tokens: int = 1_152
    changed_tokens: int = 32
    repeats: int = 5
    baseline: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """One generation: ids, the prompt tokens that were cached, and (seconds, tokens) of each piece since the call."""

    ids: list[int]
    cached: int
    pieces: list[tuple[float, int]]


Samples = dict[str, list[float]]
"""Values of each measured quantity, one a repeat."""


def params(quick: bool) -> Params:
    return Params(decode_tokens=24, repeats=2) if quick else Params()


def run(params: Params, note: Note) -> list[Result]:
    try:
        from belady.engine.engine import Engine
        from belady.engine.sizes import EngineConfig
        from belady.models.errors import ModelLoadError
        from belady.models.source import open_model
    except ImportError as error:
        raise BenchError(f"{error.name} is not installed: pip install 'belady[serve,torch]'") from error
    threads = params.threads or usable_cores()
    try:
        with open_model(params.model) as source:
            baseline = _baseline(source, threads, note) if params.baseline else None
            engine = Engine.load(source, EngineConfig(threads=threads))
    except (ModelLoadError, EngineError) as error:
        raise BenchError(str(error)) from error
    with asyncio.Runner() as runner:
        driver = Driver(engine, runner)
        try:
            return _measure(driver, baseline, params)
        finally:
            runner.run(engine.close())


def _baseline(source: object, threads: int, note: Note) -> Baseline | None:
    from belady.bench.serve_baseline import Baseline, BaselineError

    try:
        return Baseline(source, threads)  # type: ignore[arg-type]
    except BaselineError as error:
        note(f"no baseline: {error}")
        return None


class Driver:
    """Blocking calls into the engine. Each call uses a cache namespace of its own unless it is told one."""

    def __init__(self, engine: Engine, runner: asyncio.Runner) -> None:
        self._engine = engine
        self._runner = runner
        self._numbers = itertools.count(1)

    def encode(self, text: str) -> list[int]:
        return self._engine.text.encode(text)

    def generate(
        self, prompts: Sequence[Sequence[int]], tokens: int, salt: str | None = None
    ) -> list[Answer]:
        """All prompts at once, `tokens` new tokens each."""
        return self._runner.run(self._all(prompts, tokens, salt))

    async def _all(self, prompts: Sequence[Sequence[int]], tokens: int, salt: str | None) -> list[Answer]:
        begin = time.perf_counter()
        calls = (self._one(prompt, tokens, salt, begin) for prompt in prompts)
        return list(await asyncio.gather(*calls))

    async def _one(self, prompt: Sequence[int], tokens: int, salt: str | None, begin: float) -> Answer:
        number = next(self._numbers)
        sampling = Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        request = Generate(
            request_id=f"bench-{number}",
            prompt_ids=prompt,
            sampling=sampling,
            salt=f"bench {number}" if salt is None else salt,
        )
        ids: list[int] = []
        pieces: list[tuple[float, int]] = []
        cached = 0
        async for delta in self._engine.generate(request):
            if delta.token_ids:
                pieces.append((time.perf_counter() - begin, len(delta.token_ids)))
                ids.extend(delta.token_ids)
            if delta.finish_reason in ("error", "abort"):
                raise BenchError(f"the engine ended a request with {delta.finish_reason}: {delta.detail}")
            if delta.usage is not None:
                cached = delta.usage.cached_tokens
        return Answer(ids, cached, pieces)


def first_token(answer: Answer) -> float:
    """Seconds from the call to the first token."""
    return answer.pieces[0][0]


def decode_rate(answers: Sequence[Answer]) -> float:
    """Tokens per second of all answers together, from the moment when all of them have begun."""
    begin = max(map(first_token, answers))
    later = [piece for answer in answers for piece in answer.pieces if piece[0] > begin]
    if not later:
        raise BenchError("all tokens came at once: decode more tokens")
    return sum(count for _, count in later) / (max(at for at, _ in later) - begin)


def steps_rate(times: Sequence[float], batch: int) -> float:
    """The same for a side that steps all rows together: tokens after the first step per second."""
    if len(times) < 2:
        raise BenchError("a decode rate needs two tokens: decode more")
    return batch * (len(times) - 1) / (times[-1] - times[0])


def _measure(driver: Driver, baseline: Baseline | None, params: Params) -> list[Result]:
    ours: Samples = {}
    theirs: Samples = {}
    same: dict[int, bool] = {}
    texts = Prompts(driver.encode)
    driver.generate([texts.next(16)], 2)
    if baseline is not None:
        baseline.generate([texts.next(16)], 2)
    for _ in range(params.repeats):
        _prefill(driver, baseline, texts.next(params.prefill_tokens), ours, theirs)
        for batch in params.batches:
            prompts = [texts.next(params.decode_prompt_tokens) for _ in range(batch)]
            equal = _decode(driver, baseline, prompts, params.decode_tokens, ours, theirs)
            same[batch] = same.get(batch, True) and equal
        _first_tokens(driver, baseline, texts, params, ours, theirs)
    return results(params, ours, theirs if baseline is not None else None, same)


class Prompts:
    """Prompts of a given length, each of other words from the start."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._number = 0

    def next(self, tokens: int) -> list[int]:
        self._number += 1
        lines: list[str] = []
        ids: list[int] = []
        while len(ids) < tokens:
            lines += [
                f"{self._number}.{i}: the agent reads module {i * 7 % 91}, runs {i % 13} tests and notes what failed."
                for i in range(len(lines), len(lines) + 32)
            ]
            ids = self._encode("\n".join(lines))
        return ids[:tokens]


def _prefill(
    driver: Driver, baseline: Baseline | None, prompt: list[int], ours: Samples, theirs: Samples
) -> None:
    (answer,) = driver.generate([prompt], 1)
    _add(ours, "prefill", len(prompt) / first_token(answer))
    if baseline is not None:
        _, times = baseline.generate([prompt], 1)
        _add(theirs, "prefill", len(prompt) / times[0])


def _decode(
    driver: Driver,
    baseline: Baseline | None,
    prompts: list[list[int]],
    tokens: int,
    ours: Samples,
    theirs: Samples,
) -> bool:
    """Whether both sides drew the same ids."""
    name = f"decode_{len(prompts)}"
    answers = driver.generate(prompts, tokens)
    _add(ours, name, decode_rate(answers))
    if baseline is None:
        return True
    ids, times = baseline.generate(prompts, tokens)
    _add(theirs, name, steps_rate(times, len(prompts)))
    return ids == [answer.ids for answer in answers]


def _first_tokens(
    driver: Driver, baseline: Baseline | None, texts: Prompts, params: Params, ours: Samples, theirs: Samples
) -> None:
    """A long prompt cold, then one that shares all but its end. The baseline computes either in full: once is enough."""
    long = texts.next(params.long_tokens)
    changed = long[: -params.changed_tokens] + texts.next(params.changed_tokens)
    salt = f"long {params.long_tokens} {long[:8]}"
    (cold,) = driver.generate([long], 1, salt)
    if baseline is not None:
        took = baseline.generate([long], 1)[1][0]
        _add(theirs, "cold", took)
        _add(theirs, "hit", took)
    (hit,) = driver.generate([changed], 1, salt)
    _add(ours, "cold", first_token(cold))
    _add(ours, "hit", first_token(hit))
    _add(ours, "cached", hit.cached)


def _add(samples: Samples, name: str, value: float) -> None:
    samples.setdefault(name, []).append(value)


def results(params: Params, ours: Samples, theirs: Samples | None, same: dict[int, bool]) -> list[Result]:
    """Medians over the repeats, side by side."""
    from belady.bench.serve_baseline import NAME

    def row(
        metric: str, claim: str, unit: str, name: str, *, higher: bool, exact: bool | None = None
    ) -> Result:
        return compared(
            metric,
            claim,
            unit,
            median(ours[name]),
            better="higher" if higher else "lower",
            baseline=None if theirs is None else median(theirs[name]),
            baseline_name=None if theirs is None else NAME,
            exact=None if theirs is None else exact,
        )

    shared = params.long_tokens - params.changed_tokens
    speedup = [cold / hit for cold, hit in zip(ours["cold"], ours["hit"], strict=True)]
    return [
        row("prefill", f"prompt tokens per second, {params.prefill_tokens} tokens, nothing cached", "tokens/s",
            "prefill", higher=True),
        *(
            row(f"decode_{batch}", f"tokens per second of {batch} requests decoding together", "tokens/s",
                f"decode_{batch}", higher=True, exact=same[batch])
            for batch in params.batches
        ),
        row("ttft_cold", f"time to first token of {params.long_tokens} prompt tokens, nothing cached", "s", "cold",
            higher=False),
        row("ttft_hit", f"the same when {shared} of them were seen before (the baseline keeps none: as cold)", "s", "hit",
            higher=False),
        compared("hit_speedup", "time to first token, cold over prefix hit", "x", median(speedup), better="higher"),
        compared("hit_cached_tokens", f"prompt tokens not computed again, of {shared} shared", "tokens",
                 median(ours["cached"]), better="higher", bound=float(shared)),
    ]  # fmt: skip
