"""Request bodies: bounded reading and strict decoding into structs. Knows nothing of what the fields mean."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from belady.api.errors import ApiError, invalid

T = TypeVar("T")

DISCARD_FACTOR = 8
"""A body over the limit is read and thrown away up to this many limits, so that the client gets to see the 413."""

_MISSING = re.compile(r"missing required field `(\w+)`$")
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_NOT_A_NUMBER = re.compile(rb"-?(NaN|Infinity)\b")
_POSITION = re.compile(r"\(byte (?P<byte>\d+)\)")


async def read(request: Request, limit: int) -> bytes:
    """The whole body, at most `limit` bytes; raises `ApiError` 413 beyond that."""
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdigit() else 0
    if size > limit and (size > limit * DISCARD_FACTOR or "expect" in request.headers):
        raise _too_large(limit)
    chunks: list[bytes] = []
    total = 0
    try:
        async for chunk in request.stream():
            total += len(chunk)
            if total > limit * DISCARD_FACTOR:
                raise _too_large(limit)
            if total > limit:
                chunks.clear()
            else:
                chunks.append(chunk)
    except ClientDisconnect as error:
        raise ApiError(
            400, "the connection closed before the whole body arrived", code="incomplete_body"
        ) from error
    if total > limit:
        raise _too_large(limit)
    return b"".join(chunks)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """`body` as the decoder's type; raises `ApiError` 400 that names the field or the byte."""
    if not body:
        raise invalid("the body is empty: send a JSON object", code="invalid_json")
    _check_utf8(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from error
    except msgspec.DecodeError as error:
        raise _malformed(str(error), body) from error
    except (RecursionError, ValueError) as error:
        raise invalid(f"the body cannot be read as JSON: {error}", code="invalid_json") from error


def _check_utf8(body: bytes) -> None:
    if body.isascii():
        return
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"the body is not valid UTF-8 (byte {error.start}: {error.reason}): encode it as UTF-8"
        raise invalid(message, code="invalid_utf8") from error


def _too_large(limit: int) -> ApiError:
    message = f"the body is larger than {limit} bytes: send less, or raise api.max_body_bytes on the server"
    return ApiError(413, message, code="body_too_large", headers={"connection": "close"})


def _wrong_type(message: str) -> ApiError:
    match = _PATH.search(message)
    if match is None:
        if missing := _MISSING.search(message):
            return invalid(f"the body lacks `{missing[1]}`: add it", missing[1], "missing_field")
        return invalid(f"the body has the wrong type: {message}", code="invalid_type")
    path = match["path"]
    what = message[: match.start()]
    return invalid(f"`{path}`: {what[:1].lower()}{what[1:]}", path or None, "invalid_type")


def _malformed(message: str, body: bytes) -> ApiError:
    where = _POSITION.search(message)
    at = int(where["byte"]) if where else 0
    bad = _NOT_A_NUMBER.match(body, at) or _NOT_A_NUMBER.match(body, max(0, at - 1))
    if bad:
        text = f"{bad[0].decode()} (byte {at}) is not a JSON number: send a finite number"
        return invalid(text, code="invalid_number")
    return invalid(f"the body is not valid JSON: {message}", code="invalid_json")
