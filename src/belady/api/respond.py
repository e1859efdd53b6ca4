"""From an exchange to an HTTP response, streamed or whole. Protocols differ only in their `Shape`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from belady.api import sse
from belady.api.context import Context, releasing
from belady.api.errors import ApiError, json_response
from belady.api.exchange import Choice, Disconnected, Exchange, UsageSum, collect
from belady.core.client import Delta, Generate

HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Shape(Protocol):
    """How one protocol writes deltas, choices and usage as JSON values. One object per call; may keep state."""

    def chunks(self, delta: Delta) -> Iterable[object]: ...

    def usage_chunk(self, usage: dict[str, object]) -> object: ...

    def whole(self, choices: Sequence[Choice], usage: dict[str, object]) -> object: ...


async def respond(
    request: Request,
    owner: Context,
    generates: Sequence[Generate],
    shape: Shape,
    *,
    stream: bool,
    include_usage: bool,
) -> Response:
    """Run `generates` and answer. Failures before the first token have a status of their own, also in streams."""
    exchange = owner.open(generates, request.receive)
    n = generates[0].n
    if not stream:
        async with releasing(owner, exchange):
            return await _whole(exchange, len(generates) * n, n, shape)
    try:
        first = await exchange.batch(owner.config.keepalive_seconds)
    except Disconnected:
        await owner.release(exchange)
        return Response(status_code=499)
    except BaseException:
        await owner.release(exchange)
        raise
    return EventStream(owner, exchange, shape, first, UsageSum(n) if include_usage else None)


async def _whole(exchange: Exchange, count: int, n: int, shape: Shape) -> Response:
    try:
        choices = await collect(exchange, count)
    except Disconnected:
        return Response(status_code=499)
    usage = UsageSum(n)
    for index, choice in enumerate(choices):
        usage.add(index, choice.usage)
    return json_response(shape.whole(choices, usage.body()))


class EventStream(Response):
    """Server-sent events of one exchange. Everything that is ready goes out in one write."""

    def __init__(
        self, owner: Context, exchange: Exchange, shape: Shape, first: list[Delta], usage: UsageSum | None
    ) -> None:
        super().__init__(headers=HEADERS, media_type="text/event-stream")
        del self.headers["content-length"]
        self._owner = owner
        self._exchange = exchange
        self._shape = shape
        self._first = first
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with releasing(self._owner, self._exchange):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            try:
                await self._write(send)
            except Disconnected:
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        deltas = self._first
        try:
            while True:
                end = self._exchange.ended
                await _send(send, self._encode(deltas, end) if deltas or end else sse.KEEPALIVE)
                if end:
                    return
                deltas = await self._exchange.batch(self._owner.config.keepalive_seconds)
        except ApiError as error:
            await _send(send, sse.event(error.body()) + sse.DONE)

    def _encode(self, deltas: Sequence[Delta], end: bool) -> bytes:
        parts: list[object] = []
        for delta in deltas:
            parts.extend(self._shape.chunks(delta))
            if self._usage is not None:
                self._usage.add(delta.index, delta.usage)
        if end and self._usage is not None:
            parts.append(self._shape.usage_chunk(self._usage.body()))
        return sse.events(parts) + (sse.DONE if end else b"")


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
