"""Numbered lines of a plain or gzipped file, one at a time, and the error that names a line.

It knows no trace format: it only guarantees constant memory and that every way a file can be unreadable
becomes a `FormatError`.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO, TypeVar

import msgspec

T = TypeVar("T")

MAX_LINE_BYTES = 64 << 20
"""Longest line accepted; the largest known conversation takes under 0.2 MB."""

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class FormatError(ValueError):
    """A trace file that cannot be read: `path`, 1-based `line` (None: the whole file), `problem`, `fix`."""

    def __init__(self, path: str | os.PathLike[str], line: int | None, problem: str, fix: str) -> None:
        self.path = os.fspath(path)
        self.line = line
        self.problem = problem
        self.fix = fix
        where = self.path if line is None else f"{self.path}, line {line}"
        super().__init__(f"{where}: {problem}; {fix}")


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yields (1-based line number, stripped line) for every non-blank line; decompresses gzip by content.

    Raises `FormatError` for a file that cannot be opened, damaged gzip data, a line over `MAX_LINE_BYTES`
    and a file without any line.
    """
    number = 0
    empty = True
    try:
        with _open(path) as stream:
            while raw := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise FormatError(
                        path, number, f"the line exceeds {MAX_LINE_BYTES >> 20} MiB", "is this a trace file?"
                    )
                line = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
                if line:
                    empty = False
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(
            path, number + 1, f"damaged gzip data ({error})", "fetch or compress the file again"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise FormatError(
            path, None, f"cannot be read ({reason})", "check the path and its rights"
        ) from error
    if empty:
        raise FormatError(path, None, "holds no line", "check that the download or export finished")


def decode_line(
    decoder: msgspec.json.Decoder[T], line: bytes, path: str | os.PathLike[str], number: int, fix: str
) -> T:
    """Decodes one JSON line; whatever is wrong with it becomes a `FormatError` with its number and `fix`."""
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(path, number, _first_line(error), fix) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    stream = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    if stream.peek(2)[:2] != _GZIP_MAGIC:
        return stream
    stream.close()
    return gzip.open(path, "rb")  # type: ignore[return-value]
