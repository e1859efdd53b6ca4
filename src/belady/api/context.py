"""What all routes of one server share: the engine, settings, metrics, text threads and the requests in flight."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.types import Receive

from belady.api.config import ApiConfig
from belady.api.errors import ApiError
from belady.api.exchange import Exchange
from belady.core.client import EngineClient, Generate
from belady.obs.metrics import Metrics

T = TypeVar("T")

ABORT_SECONDS = 5.0
"""How long aborted requests may take to free what they hold."""

log = logging.getLogger("belady.api")


class Context:
    """State of one running server. Lives on the event loop's thread."""

    def __init__(self, client: EngineClient, config: ApiConfig) -> None:
        self.client = client
        self.config = config
        self.metrics = Metrics(client.model, client.stats, namespace=config.metrics_namespace)
        self.names = config.served_names or (client.model.name,)
        self.created = client.model.created or int(time.time())
        self.draining = False
        self._active: set[Exchange] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads: anyio.CapacityLimiter | None = None
        client.subscribe(self.metrics.observe)

    @property
    def active(self) -> int:
        """Calls that generate right now."""
        return len(self._active)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run tokenising or templating off the event loop, on a bounded number of threads."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(self.config.text_threads)
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def open(self, requests: Sequence[Generate], receive: Receive) -> Exchange:
        """Start generating; the caller must `release` the exchange."""
        exchange = Exchange(self.client, requests, self.metrics.track(time.monotonic()))
        self._active.add(exchange)
        self._idle.clear()
        exchange.start(receive)
        return exchange

    async def release(self, exchange: Exchange) -> None:
        """End what still runs of `exchange` and forget it. Idempotent."""
        try:
            await exchange.close()
        finally:
            self._active.discard(exchange)
            if not self._active:
                self._idle.set()

    async def drain(self) -> None:
        """Refuse new work, give running calls `drain_seconds`, then end them with an error."""
        self.draining = True
        log.info("draining: %d calls still run", self.active)
        engine = asyncio.ensure_future(self.client.drain())
        try:
            await asyncio.wait_for(self._idle.wait(), self.config.drain_seconds)
        except TimeoutError:
            self.abort_all("the server is shutting down")
        # What was aborted frees its resources now; an engine that cannot do so must not keep the server up.
        _, late = await asyncio.wait(
            {engine, asyncio.ensure_future(self._idle.wait())}, timeout=ABORT_SECONDS
        )
        for task in late:
            task.cancel()
            log.warning("the engine did not become idle in %g s", ABORT_SECONDS)

    def abort_all(self, reason: str) -> None:
        """End every running call with a 503."""
        for exchange in tuple(self._active):
            exchange.fail(ApiError(503, f"aborted: {reason}", kind="server_error", code="aborted"))


def context(request: Request) -> Context:
    """The server's context, from a request's application state."""
    found: Context = request.app.state.context
    return found


@asynccontextmanager
async def releasing(owner: Context, exchange: Exchange) -> AsyncIterator[Exchange]:
    """Release `exchange` at the end of the block, whatever happens in it."""
    try:
        yield exchange
    finally:
        with anyio.CancelScope(shield=True):
            await owner.release(exchange)
