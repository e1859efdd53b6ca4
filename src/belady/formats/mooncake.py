"""Mooncake JSONL: one request a line, with global ids of 512-token prefix blocks.

Format of the traces published with "Mooncake: Trading More Storage for Less Computation" (FAST 2025): an id names
the prefix up to and including its block, so equal ids in two requests mean an equal prefix. The last block of a
request may be partial. This file knows no scheduling and expands nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from belady.formats.lines import FormatError, decode_line, read_lines

BLOCK_TOKENS = 512

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_FIX = 'each line must be {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}'


class MooncakeRow(msgspec.Struct, frozen=True, gc=False):
    """One request: arrival in ms from the start of the trace, lengths in tokens, block ids in prompt order."""

    timestamp: Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    output_length: Count
    hash_ids: tuple[Count, ...]


def read_mooncake(path: str | os.PathLike[str], *, block_tokens: int = BLOCK_TOKENS) -> Iterator[MooncakeRow]:
    """Yields the rows in file order, one in memory at a time; plain or gzipped.

    Raises `FormatError` at the first line that is not a row, goes back in time, or whose number of ids is not
    ceil(input_length / block_tokens).
    """
    decoder = msgspec.json.Decoder(MooncakeRow)
    previous: float = 0
    for number, line in read_lines(path):
        row = decode_line(decoder, line, path, number, _FIX)
        blocks = -(-row.input_length // block_tokens)
        if len(row.hash_ids) != blocks:
            raise FormatError(
                path,
                number,
                f"{len(row.hash_ids)} hash_ids for {row.input_length} tokens, expected {blocks}",
                f"give one id per started block of {block_tokens} tokens",
            )
        if row.timestamp < previous:
            raise FormatError(
                path,
                number,
                f"timestamp {row.timestamp} lies before {previous}",
                "sort the rows by timestamp",
            )
        previous = row.timestamp
        yield row


def write_mooncake(path: str | os.PathLike[str], rows: Iterable[MooncakeRow]) -> int:
    """Writes the rows as plain JSONL, replacing the file; returns how many were written."""
    encoder = msgspec.json.Encoder()
    written = 0
    with Path(path).open("wb") as out:
        for row in rows:
            out.write(encoder.encode(row) + b"\n")
            written += 1
    return written
