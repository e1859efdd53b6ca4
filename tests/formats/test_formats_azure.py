"""Azure CSV: published totals, seven fractional digits, damaged rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.formats import AzureRow, FormatError, read_azure

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
GOOD = b"2023-11-16 18:17:03.9799600,4808,10\r\n"


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_full_trace_matches_the_published_totals(full_data: Path) -> None:
    rows = list(read_azure(full_data / "azure_llm_2023" / "AzureLLMInferenceTrace_code.csv"))
    assert len(rows) == 8_819
    context = sorted(row.context_tokens for row in rows)
    generated = sorted(row.generated_tokens for row in rows)
    assert round(sum(context) / len(rows), 1) == 2047.8
    assert round(sum(generated) / len(rows), 1) == 27.9
    assert (context[len(rows) // 2], context[-1], generated[len(rows) // 2], generated[-1]) == (
        1469,
        7437,
        13,
        1899,
    )


def test_excerpt_starts_at_zero_and_never_goes_back(excerpts: Path) -> None:
    rows = list(read_azure(excerpts / "azure_code_excerpt.csv"))
    assert len(rows) == 300
    assert rows[:2] == [AzureRow(0.0, 4808, 10), AzureRow(0.052, 3180, 8)]
    assert all(a.at <= b.at for a, b in pairwise(rows))


def test_the_seventh_digit_and_midnight_count(tmp_path: Path) -> None:
    rows = b"2023-12-31 23:59:59.9999999,1,0\n2024-01-01 00:00:00.0000001,1,0\n2024-01-01 00:00:01,1,0"
    assert [row.at for row in read_azure(_write(tmp_path / "t", HEADER + rows))] == [0.0, 2e-7, 1.0000001]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"2023-11-16 18:17:03.9799600,4808", "not a row"),
        (b"2023-11-16 18:17:03.9799600,4808,-1", "not a row"),
        (b"2023-13-16 18:17:03.9799600,4808,1", "impossible time"),
        (b"2023-11-16 18:17:02,4808,1", "before"),
        (b"2023-11-16 18:17:04,0,1", "ContextTokens is 0"),
        (b"\xff\xfe", "not a row"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: bytes, problem: str) -> None:
    with pytest.raises(FormatError) as caught:
        list(read_azure(_write(tmp_path / "t", HEADER + GOOD + bad)))
    assert caught.value.line == 3
    assert problem in caught.value.problem


def test_wrong_header_and_no_rows(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="line 1: not the header"):
        list(read_azure(_write(tmp_path / "a", b"a,b,c\n" + GOOD)))
    with pytest.raises(FormatError, match="no rows"):
        list(read_azure(_write(tmp_path / "b", HEADER)))


@settings(deadline=None)
@given(position=st.integers(0, len(GOOD) - 3), junk=st.binary(min_size=1, max_size=6))
def test_damage_never_escapes_as_another_exception(
    tmp_path_factory: pytest.TempPathFactory, position: int, junk: bytes
) -> None:
    damaged = GOOD[:position] + junk + GOOD[position + len(junk) :]
    path = _write(tmp_path_factory.mktemp("fuzz") / "t.csv", HEADER + GOOD + damaged)
    try:
        rows = list(read_azure(path))
    except FormatError as error:
        assert error.line is not None and error.line >= 3
    else:
        assert rows[0] == AzureRow(0.0, 4808, 10)
