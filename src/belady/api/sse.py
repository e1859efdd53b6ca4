"""Server-sent events: encoding for the server, parsing for our own clients. Knows nothing of what is sent."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable

import msgspec

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keep-alive\n\n"

_encode = msgspec.json.Encoder().encode


def event(value: object) -> bytes:
    """One event whose data is `value` as JSON."""
    return b"data: " + _encode(value) + b"\n\n"


def events(values: Iterable[object]) -> bytes:
    """Several events in one piece, so that they cost one write."""
    return b"".join(event(value) for value in values)


async def read(lines: AsyncIterable[str]) -> AsyncIterator[dict]:
    """JSON objects of an event stream until `[DONE]` or its end; comments are skipped. Input: lines without breaks."""
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        yield msgspec.json.decode(data)
