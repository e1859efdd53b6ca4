"""Azure LLM inference CSV: arrival time and lengths of each request, without any content identity.

Format of the traces published with "Splitwise: Efficient Generative LLM Inference Using Phase Splitting" (ISCA 2024).
Times are naive and printed with seven fractional digits; only differences mean anything, so rows carry seconds from
the first one. This file knows no prefix: the format has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from belady.formats.lines import FormatError, read_lines

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens"

_ROW = re.compile(
    rb"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00:00|Z)?,([0-9]{1,9}),([0-9]{1,9})"
)
_FIX = "each row must be 'YYYY-MM-DD hh:mm:ss.fffffff,context,generated'"
_EPOCH = datetime(1970, 1, 1)


class AzureRow(msgspec.Struct, frozen=True, gc=False):
    """One request: `at` in seconds from the first row, lengths in tokens."""

    at: float
    context_tokens: int
    generated_tokens: int


def read_azure(path: str | os.PathLike[str]) -> Iterator[AzureRow]:
    """Yields the rows in file order, one in memory at a time; plain or gzipped.

    Raises `FormatError` at a wrong header, at the first line that is not a row or goes back in time, and for a file
    without rows.
    """
    lines = read_lines(path)
    number, header = next(lines)
    if header != HEADER:
        raise FormatError(path, number, "not the header of this format", f"expected {HEADER.decode()}")
    start: int | None = None
    previous = 0
    for number, line in lines:
        nanoseconds, context, generated = _parse(line, path, number)
        if start is None:
            start = previous = nanoseconds
        if nanoseconds < previous:
            raise FormatError(
                path, number, "the time lies before the previous row", "sort the rows by TIMESTAMP"
            )
        previous = nanoseconds
        yield AzureRow((nanoseconds - start) / 1e9, context, generated)
    if start is None:
        raise FormatError(path, None, "has a header but no rows", "check that the download finished")


def _parse(line: bytes, path: str | os.PathLike[str], number: int) -> tuple[int, int, int]:
    """Integer nanoseconds since 1970 (exact at any number of digits), context tokens, generated tokens."""
    match = _ROW.fullmatch(line)
    if match is None:
        raise FormatError(path, number, f"not a row: {line[:80].decode('ascii', 'backslashreplace')!r}", _FIX)
    clock, fraction, context, generated = match.groups()
    try:
        moment = datetime.fromisoformat(clock.decode())
    except ValueError as error:
        raise FormatError(path, number, f"impossible time {clock.decode()!r} ({error})", _FIX) from error
    whole = moment - _EPOCH
    nanoseconds = (whole.days * 86_400 + whole.seconds) * 10**9 + int((fraction or b"").ljust(9, b"0"))
    if int(context) == 0:
        raise FormatError(path, number, "ContextTokens is 0", "a request needs at least one prompt token")
    return nanoseconds, int(context), int(generated)
