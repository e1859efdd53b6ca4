"""One HTTP request's generations: runs them, merges their deltas, ends them on disconnect, failure or shutdown.

Knows the engine's port and clocks of the edge; knows neither JSON nor SSE.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from starlette.types import Receive

from belady.api.errors import ApiError, from_engine, internal
from belady.core.client import Delta, EngineClient, EngineError, Generate, TokenLogprob, Usage
from belady.obs.metrics import RequestTimes

log = logging.getLogger("belady.api")


class Disconnected(Exception):  # noqa: N818 - an event, not an error
    """The client went away; nobody reads an answer."""


class Exchange:
    """The generations of one request, as one stream of deltas with indices `prompt * n + choice`.

    Owns a task per generation; `close` ends them, which aborts and frees in the engine.
    """

    def __init__(self, client: EngineClient, requests: Sequence[Generate], times: RequestTimes) -> None:
        self._client = client
        self._requests = requests
        self._times = times
        self._queue: deque[Delta] = deque()
        self._wake = asyncio.Event()
        self._failure: Exception | None = None
        self._open = sum(request.n for request in requests)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def ended(self) -> bool:
        """Every choice ended and was handed out."""
        return not self._open and not self._queue

    def start(self, receive: Receive) -> None:
        """Begin generating, and watch `receive` for the client's hanging up."""
        for slot, request in enumerate(self._requests):
            self._tasks.append(asyncio.create_task(self._pump(slot, request)))
        self._tasks.append(asyncio.create_task(self._watch(receive)))

    def fail(self, failure: Exception) -> None:
        """End with `failure` once what is queued has been handed out. The first failure counts."""
        if self._failure is None:
            self._failure = failure
        self._wake.set()

    async def batch(self, timeout: float | None = None) -> list[Delta]:
        """Everything that is ready; waits for the first, at most `timeout` seconds ([] then).

        Raises `ApiError` when a generation failed and `Disconnected` when the client left.
        """
        if not self._queue and self._failure is None and self._open:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), timeout)
            except TimeoutError:
                return []
        if isinstance(self._failure, Disconnected):
            raise self._failure
        ready = list(self._queue)
        self._queue.clear()
        if not ready and self._failure is not None:
            raise self._failure
        return ready

    async def close(self) -> None:
        """End all tasks and wait for them. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, slot: int, request: Generate) -> None:
        stream: AsyncIterator[Delta] | None = None
        offset = slot * request.n
        unfinished = request.n
        try:
            stream = self._client.generate(request)
            async for delta in stream:
                self._push(replace(delta, index=delta.index + offset) if offset else delta)
                unfinished -= delta.finish_reason is not None
            if unfinished:
                self.fail(internal("the engine ended this request without a reason"))
        except EngineError as error:
            self.fail(from_engine(error))
        except Exception as error:
            log.exception("a generation failed")
            self.fail(internal(f"the engine failed on this request: {error}"))
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _push(self, delta: Delta) -> None:
        now = time.monotonic()
        self._times.delta(delta, now)
        if delta.finish_reason == "error":
            self.fail(internal(f"the engine failed on this request: {delta.detail or 'no detail'}"))
            return
        if delta.finish_reason == "abort":
            self.fail(ApiError(503, f"aborted: {delta.detail}", kind="server_error", code="aborted"))
            return
        self._queue.append(delta)
        if delta.finish_reason is not None:
            self._open -= 1
            if not self._open:
                self._times.ended(now)
        self._wake.set()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.fail(Disconnected())


@dataclass(slots=True)
class Choice:
    """One finished answer, gathered from its deltas."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    usage: Usage | None = None

    def add(self, delta: Delta) -> None:
        self.text.append(delta.text)
        self.token_ids.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.usage = delta.usage or self.usage
        if delta.finish_reason is not None:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


async def collect(exchange: Exchange, count: int) -> list[Choice]:
    """All `count` choices, complete. Raises as `Exchange.batch`."""
    choices = [Choice() for _ in range(count)]
    while not exchange.ended:
        for delta in await exchange.batch():
            choices[delta.index].add(delta)
    return choices


@dataclass(slots=True)
class UsageSum:
    """Usage of a whole call: each prompt counted once, its `n` outputs all."""

    n: int
    prompts: dict[int, Usage] = field(default_factory=dict)
    output_tokens: int = 0

    def add(self, index: int, usage: Usage | None) -> None:
        if usage is None:
            return
        self.output_tokens += usage.output_tokens
        slot = index // self.n
        known = self.prompts.get(slot)
        # Choices of one prompt share it: what the first of them found is what the call found in the cache.
        if known is None or usage.cached_tokens < known.cached_tokens:
            self.prompts[slot] = usage

    def body(self) -> dict[str, object]:
        """The `usage` object of a response."""
        prompt = sum(usage.prompt_tokens for usage in self.prompts.values())
        cached = sum(usage.cached_tokens for usage in self.prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.output_tokens,
            "total_tokens": prompt + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
