"""Mooncake JSONL: published totals, block arithmetic, round trip, damaged lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.formats import FormatError, MooncakeRow, read_mooncake, write_mooncake

GOOD = b'{"timestamp": 5, "input_length": 513, "output_length": 2, "hash_ids": [0, 1]}\n'


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_full_trace_matches_the_published_totals(full_data: Path) -> None:
    rows = list(read_mooncake(full_data / "mooncake" / "conversation_trace.jsonl"))
    assert len(rows) == 12_031
    assert round(sum(row.input_length for row in rows) / len(rows)) == 12_035
    assert round(sum(row.output_length for row in rows) / len(rows)) == 343
    ids = [block for row in rows for block in row.hash_ids]
    assert (len(ids), len(set(ids))) == (288_500, 182_790)
    assert rows[-1].timestamp == 3_536_999


def test_excerpt_holds_whole_rows_with_shared_blocks(excerpts: Path) -> None:
    rows = list(read_mooncake(excerpts / "mooncake_excerpt.jsonl"))
    assert len(rows) == 300
    ids = [block for row in rows for block in row.hash_ids]
    assert len(ids) == sum(-(-row.input_length // 512) for row in rows)
    assert len(set(ids)) < len(ids)
    assert rows[0] == MooncakeRow(0, 6758, 500, tuple(range(14)))


def test_written_rows_read_back_equal(excerpts: Path, tmp_path: Path) -> None:
    rows = list(read_mooncake(excerpts / "mooncake_excerpt.jsonl"))
    assert write_mooncake(tmp_path / "copy.jsonl", rows) == 300
    assert list(read_mooncake(tmp_path / "copy.jsonl")) == rows


def test_gzip_is_seen_by_content_and_not_by_name(tmp_path: Path) -> None:
    path = _write(tmp_path / "trace.jsonl", gzip.compress(GOOD * 3))
    assert len(list(read_mooncake(path))) == 3


def test_other_block_sizes_are_a_parameter(tmp_path: Path) -> None:
    row = b'{"timestamp": 0.5, "input_length": 33, "output_length": 0, "hash_ids": [7, 8, 9]}'
    assert [r.timestamp for r in read_mooncake(_write(tmp_path / "t", row), block_tokens=16)] == [0.5]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b'{"timestamp": 9}', "input_length"),
        (b'{"timestamp": 9, "input_length": 513, "output_length": 2, "hash_ids": [1]}', "expected 2"),
        (b'{"timestamp": 4, "input_length": 1, "output_length": 2, "hash_ids": [1]}', "before"),
        (b'{"timestamp": 9, "input_length": 0, "output_length": 2, "hash_ids": []}', "input_length"),
        (b'{"timestamp": 9, "input_length": 1, "output_length": -2, "hash_ids": [1]}', "output_length"),
        (b'{"timestamp": 9, "input_length": 1, "output_length": 2, "hash_ids": [2147483648]}', "hash_ids"),
        (b'{"timestamp": NaN, "input_length": 1, "output_length": 2, "hash_ids": [1]}', "malformed"),
        (b'{"timestamp": 1e999, "input_length": 1, "output_length": 2, "hash_ids": [1]}', "range"),
        (b"[" * 100_000, "object"),
        (b'{"x": ' + b"[" * 100_000, ""),
        (b"\xff\xfe", ""),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: bytes, problem: str) -> None:
    path = _write(tmp_path / "t.jsonl", GOOD + b"\n" + bad + b"\n" + GOOD)
    reader = read_mooncake(path)
    assert next(reader).input_length == 513
    with pytest.raises(FormatError, match=r"line 3: .*; ") as caught:
        next(reader)
    assert caught.value.line == 3
    assert problem in caught.value.problem


def test_unreadable_files_are_format_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", _write(tmp_path / "empty", b"\n \n")):
        with pytest.raises(FormatError) as caught:
            list(read_mooncake(path))
        assert caught.value.line is None


@settings(deadline=None)
@given(cut=st.integers(1, 200))
def test_truncated_gzip_is_a_format_error(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = gzip.compress(b"".join(GOOD.replace(b"5,", b"%d," % n, 1) for n in range(10, 90)))
    path = _write(tmp_path_factory.mktemp("gz") / "t.gz", whole[: -min(cut, len(whole) - 3)])
    with pytest.raises(FormatError):
        list(read_mooncake(path))


@settings(deadline=None)
@given(position=st.integers(0, len(GOOD) - 2), junk=st.binary(min_size=1, max_size=6))
def test_damage_never_escapes_as_another_exception(
    tmp_path_factory: pytest.TempPathFactory, position: int, junk: bytes
) -> None:
    damaged = GOOD[:position] + junk + GOOD[position + len(junk) :]
    path = _write(tmp_path_factory.mktemp("fuzz") / "t.jsonl", GOOD + damaged)
    try:
        rows = list(read_mooncake(path))
    except FormatError as error:
        assert error.line is not None and error.line >= 2
    else:
        assert rows[0].input_length == 513
