"""The engine: a model behind `belady.core.client.EngineClient`.

Puts together what does the work (core, loop, runner, outputs) and translates requests into facts. One engine thread,
one runner thread, any number of event loops. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from belady.core.client import (
    Delta,
    EngineError,
    EngineStats,
    Generate,
    ModelInfo,
    Sampling,
)
from belady.core.config import CoreConfig
from belady.core.events import Event
from belady.core.facts import Aborted, Arrived
from belady.core.pipeline import Pipeline
from belady.core.request import Request
from belady.core.scheduler import Scheduler
from belady.engine.clock import MonotonicClock
from belady.engine.executor import Executor
from belady.engine.loop import EngineLoop, LiveInbox
from belady.engine.model_text import ModelText
from belady.engine.outputs import Channel, Choice, Outputs
from belady.engine.runner import Runner, RunnerConfig
from belady.engine.sampler import RowParams, mix
from belady.engine.sizes import EngineConfig, resolve
from belady.models.registry import build_program
from belady.models.source import ModelSource
from belady.policy import registry
from belady.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

_OVERLAP_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What the engine must know of a model besides its executor."""

    name: str
    vocab: int
    context_length: int
    """What the model was made for, before any limit of this engine."""
    eos_ids: tuple[int, ...]
    tokenizer: Tokenizer
    text: ModelText


class Engine:
    """Satisfies `EngineClient`. Threads start at construction and end with `close`."""

    @classmethod
    def load(cls, source: ModelSource, config: EngineConfig | None = None) -> Engine:
        """Read the weights of `source` (which may be closed afterwards) and get ready to serve.

        Raises `EngineError`, `belady.core.config.ConfigError`, `belady.policy.registry.PolicyError`,
        `belady.kernels.errors.KernelError` (among them `CacheMemoryError`) or a model's load error.
        """
        # The reference backend needs torch, which is an extra: imported only by those who load a model.
        from belady.kernels.torch_backend import TorchBackend

        config = config or EngineConfig()
        program = build_program(source.config)
        backend = TorchBackend(program, source.weights, config.dtype, config.device, config.threads)
        page_bytes = [backend.bytes_per_page(g, config.page_size) for g in range(len(program.groups))]
        core = resolve(config, program.groups, page_bytes, source.config.context_length)
        # Memory first: the scheduler's own lists grow with the pages, and no cache that fits makes them too long.
        backend.allocate([group.pages for group in core.groups], core.page_size)
        scheduler = _scheduler(core, config)
        sizes = RunnerConfig(
            groups=len(core.groups),
            page_size=core.page_size,
            max_context=core.max_context,
            vocab=source.config.vocab_size,
        )
        model = ServedModel(
            name=source.name,
            vocab=source.config.vocab_size,
            context_length=source.config.context_length,
            eos_ids=tuple(dict.fromkeys((*source.tokenizer.eos_ids, *source.config.eos_ids))),
            tokenizer=source.tokenizer,
            text=ModelText(source.tokenizer, source.chat_template, source.name),
        )
        clock = MonotonicClock()
        return cls(model, scheduler, Runner(backend, sizes, clock), clock, overlap=config.overlap)

    def __init__(
        self,
        model: ServedModel,
        scheduler: Scheduler,
        executor: Executor,
        clock: MonotonicClock,
        *,
        overlap: bool = True,
    ) -> None:
        """The engine owns `scheduler` and `executor` from here on."""
        core = scheduler.config
        self._model = model
        self._info = ModelInfo(
            model.name,
            core.max_context,
            model.vocab,
            min(group.pages for group in core.groups) * core.page_size,
            core.page_size,
            int(time.time()),
            model.context_length,
        )
        self._scheduler = scheduler
        self._clock = clock
        self._rids = itertools.count(1)
        self._outputs = Outputs()
        self._outputs.on_idle = self._on_idle
        self._inbox = LiveInbox(executor)
        pipeline = Pipeline(scheduler, _OVERLAP_DEPTH if overlap else 1)
        self._loop = EngineLoop(pipeline, executor, clock, self._inbox, self._outputs)
        self._ended: EngineError | None = None
        self._draining = False
        self._idle_waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._thread = threading.Thread(target=self._run, name="belady-engine", daemon=True)
        self._thread.start()

    # -- EngineClient -------------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelInfo:
        return self._info

    @property
    def text(self) -> ModelText:
        return self._model.text

    def generate(self, request: Generate) -> AsyncIterator[Delta]:
        """Deltas of all choices, interleaved. Raises `EngineError` at once for a request that cannot be served; the work
        starts with the first iteration. Closing the iterator aborts and frees."""
        self._refuse_if_closing()
        prompt = self._validate(request)
        return self._stream(request, prompt)

    def stats(self) -> EngineStats:
        scheduler = self._scheduler
        return EngineStats(scheduler.running, scheduler.waiting, scheduler.usage(), scheduler.cached_tokens())

    def subscribe(self, observer: Callable[[Sequence[Event]], None]) -> None:
        self._outputs.subscribe(observer)

    async def drain(self) -> None:
        """Refuse new requests and return when the running ones have ended."""
        self._draining = True
        idle = asyncio.Event()
        self._idle_waiters.append((asyncio.get_running_loop(), idle))
        if len(self._outputs):
            await idle.wait()

    async def close(self) -> None:
        """End the engine; running requests get an `EngineError`. Idempotent."""
        self._draining = True
        self._loop.stop()
        await asyncio.to_thread(self._thread.join)

    # -- for tests and doctors ----------------------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Raise `AssertionError` unless all pages are accounted for. Only while nothing runs."""
        assert not len(self._outputs), "requests are running"
        self._scheduler.check_integrity()

    @property
    def used_pages(self) -> tuple[int, ...]:
        """Pages in use per layer group, cached ones included."""
        return tuple(pool.used for pool in self._scheduler.cache.pools)

    # -- inner --------------------------------------------------------------------------------------------------

    def _validate(self, request: Generate) -> np.ndarray:
        """The prompt as int32; raises `EngineError`."""
        sampling = request.sampling
        if request.n < 1:
            raise EngineError("invalid_request", f"n is {request.n}: it must be at least 1")
        if sampling.max_tokens < 1:
            raise EngineError(
                "invalid_request", f"max_tokens is {sampling.max_tokens}: it must be at least 1"
            )
        if not len(request.prompt_ids):
            raise EngineError("invalid_request", "the prompt is empty: send at least one token")
        prompt = np.asarray(request.prompt_ids, np.int64)
        bad = np.flatnonzero((prompt < 0) | (prompt >= self._model.vocab))
        if len(bad):
            raise EngineError(
                "invalid_request",
                f"token id {prompt[bad[0]]} at position {bad[0]} is outside the vocabulary: "
                f"ids go from 0 to {self._model.vocab - 1}",
            )
        unknown = [i for i in sampling.logit_bias if not 0 <= i < self._model.vocab]
        if unknown:
            raise EngineError(
                "invalid_request",
                f"logit_bias names token {unknown[0]}: ids go from 0 to {self._model.vocab - 1}",
            )
        self._check_window(len(prompt), sampling.max_tokens)
        return prompt.astype(np.int32)

    def _check_window(self, prompt: int, output: int) -> None:
        window = self._info.context_length
        if prompt + output <= window:
            return
        if prompt >= window:
            asked = f"the prompt has {prompt} tokens and at least one is to be generated: shorten the prompt"
        else:
            asked = (
                f"{prompt} prompt tokens and max_tokens = {output} were asked for: "
                f"lower max_tokens to {window - prompt}, or shorten the prompt"
            )
        if prompt + output <= self._model.context_length:
            raise EngineError(
                "cache_too_small",
                f"this server holds at most {window} tokens per request (the model could take "
                f"{self._model.context_length}), but {asked}; its operator can raise cache.bytes or engine.max_context",
            )
        raise EngineError(
            "context_length_exceeded", f"this model's context window is {window} tokens, but {asked}"
        )

    async def _stream(self, request: Generate, prompt: np.ndarray) -> AsyncIterator[Delta]:
        channel = Channel(asyncio.get_running_loop())
        rids = self._submit(request, prompt, channel)
        left = len(rids)
        try:
            while left:
                item = await channel.queue.get()
                if isinstance(item, EngineError):
                    raise item
                left -= item.finish_reason is not None
                yield item
        finally:
            if left:
                now = self._clock.now()
                self._inbox.put(*(Aborted(now, rid) for rid in rids if self._outputs.forget(rid)))

    def _submit(self, request: Generate, prompt: np.ndarray, channel: Channel) -> list[int]:
        self._refuse_if_closing()
        now = self._clock.now()
        keys = prompt.tobytes()
        arrivals = []
        for index, params in enumerate(self._row_params(request.sampling, request.n)):
            rid = next(self._rids)
            self._outputs.open(rid, Choice(channel, index, request.sampling, self._model.tokenizer))
            arrivals.append(
                Arrived(
                    now,
                    Request(
                        rid=rid,
                        prompt=keys,
                        prompt_tokens=len(prompt),
                        max_tokens=request.sampling.max_tokens,
                        # One engine, one model revision: the salt alone tells namespaces apart.
                        namespace=f"{self._model.name}\0{request.salt}",
                        priority=request.priority,
                        program=request.program,
                        parent=request.parent,
                        params=params,
                    ),
                )
            )
        rids = [fact.request.rid for fact in arrivals]
        if self._ended is not None:
            # It ended while we registered: nobody will read the inbox.
            for rid in rids:
                self._outputs.forget(rid)
            self._refuse_if_closing()
        self._inbox.put(*arrivals)
        return rids

    def _row_params(self, sampling: Sampling, n: int) -> list[RowParams]:
        eos = () if sampling.ignore_eos else self._model.eos_ids
        stops = tuple(
            i for i in dict.fromkeys((*eos, *sampling.stop_token_ids)) if 0 <= i < self._model.vocab
        )
        seeds = [
            secrets.randbits(64)
            if sampling.seed is None
            else (mix(sampling.seed + i) if i else sampling.seed)
            for i in range(n)
        ]
        return [RowParams(sampling=sampling, seed=seed, stop_ids=stops) for seed in seeds]

    def _refuse_if_closing(self) -> None:
        if self._ended is not None:
            raise EngineError(self._ended.code, str(self._ended))
        if self._draining:
            raise EngineError("draining", "the engine is shutting down: retry on another one")

    def _run(self) -> None:
        error = EngineError("closed", "the engine was closed: retry on another one")
        try:
            self._loop.run()
        except BaseException as failure:
            _log.exception("the engine loop failed; the engine ends")
            error = EngineError(
                "engine_failed", f"the engine failed ({type(failure).__name__}: {failure}): restart it"
            )
        self._ended = error
        self._outputs.fail_all(error)

    def _on_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for loop, idle in waiters:
            try:
                loop.call_soon_threadsafe(idle.set)
            except RuntimeError:
                _log.debug("an event loop closed while it waited for the engine to drain")


def _scheduler(core: CoreConfig, config: EngineConfig) -> Scheduler:
    return Scheduler(
        core,
        evict=registry.load("evict", config.evict, config.evict_config),
        order=registry.load("schedule", config.schedule, config.schedule_config),
    )
