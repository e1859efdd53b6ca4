"""Formats are told apart by content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.formats import FormatError, TraceFormat, detect, lines
from belady.formats.azure import HEADER

FILES = {
    "mooncake_excerpt.jsonl": TraceFormat.MOONCAKE,
    "weka_excerpt.jsonl.gz": TraceFormat.WEKA,
    "azure_code_excerpt.csv": TraceFormat.AZURE,
}


@pytest.mark.parametrize("name", FILES)
def test_names_do_not_matter(excerpts: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(excerpts / name, tmp_path / "data.bin")
    assert detect(tmp_path / "data.bin") is FILES[name]


def test_a_byte_order_mark_and_blank_lines_are_skipped(excerpts: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf\r\n" + (excerpts / "azure_code_excerpt.csv").read_bytes())
    assert detect(path) is TraceFormat.AZURE


@settings(deadline=None)
@given(
    st.binary(max_size=40).filter(lambda data: HEADER not in data)
    | st.dictionaries(st.text(max_size=4), st.none()).map(lambda d: repr(d).encode())
)
def test_anything_else_is_a_format_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "t"
    path.write_bytes(data)
    with pytest.raises(FormatError):
        detect(path)


def test_a_line_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "t"
    path.write_bytes(b"{" * 5000)
    with pytest.raises(FormatError, match="line 1: the line exceeds"):
        detect(path)


def test_constant_memory_reads_one_line_at_a_time(excerpts: Path) -> None:
    reader = lines.read_lines(excerpts / "mooncake_excerpt.jsonl")
    assert next(reader)[0] == 1
    assert next(reader)[0] == 2
    reader.close()
