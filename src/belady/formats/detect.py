"""Which trace format a file has, judged by its first line and never by its name."""

from __future__ import annotations

import enum
import os

import msgspec

from belady.formats.azure import HEADER
from belady.formats.lines import FormatError, decode_line, read_lines

_FIX = "expected Mooncake JSONL, WEKA compact JSONL or Azure CSV, plain or gzipped"


class TraceFormat(enum.StrEnum):
    """The formats that `detect` can tell apart."""

    MOONCAKE = "mooncake"
    WEKA = "weka"
    AZURE = "azure"


def detect(path: str | os.PathLike[str]) -> TraceFormat:
    """Names the format of a file from its first non-blank line; raises `FormatError` when it is none of ours."""
    number, line = next(read_lines(path))
    if line == HEADER:
        return TraceFormat.AZURE
    if not line.startswith(b"{"):
        raise FormatError(path, number, "neither a JSON object nor a known CSV header", _FIX)
    keys = decode_line(msgspec.json.Decoder(dict[str, msgspec.Raw]), line, path, number, _FIX).keys()
    if {"timestamp", "input_length", "hash_ids"} <= keys:
        return TraceFormat.MOONCAKE
    if {"block_size", "requests"} <= keys:
        return TraceFormat.WEKA
    raise FormatError(path, number, f"unknown fields {sorted(keys)[:6]}", _FIX)
