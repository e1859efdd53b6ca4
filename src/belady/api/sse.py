"""Server-sent events: encoding for the server, reading for our own clients. Knows nothing of what is sent."""

from __future__ import annotations

from collections.abc import Iterable

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


def payload(line: str) -> str | None:
    """The data of one line of an event stream; None for comments, blank lines and the end mark."""
    if not line.startswith("data:"):
        return None
    data = line[5:].strip()
    return None if data == "[DONE]" else data
