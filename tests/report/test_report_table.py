"""Tables: aligned plain text off a terminal, boxes on one, markup shown as it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from belady.report.progress import progress
from belady.report.table import format_cell, print_table

COLUMNS = ["policy", "hit %", "met"]
ROWS = [["lru", 36.64, True], ["[bold]clairvoyant[/bold]", 1234567, None]]


def _print(*, terminal: bool, width: int = 60) -> str:
    out = io.StringIO()
    print_table(
        "Hits", COLUMNS, ROWS, Console(file=out, force_terminal=terminal, width=width, color_system=None)
    )
    return out.getvalue()


def test_plain_text_is_aligned_and_never_cut() -> None:
    assert _print(terminal=False, width=10).splitlines() == [
        "Hits",
        "policy                        hit %  met",
        "------------------------  ---------  ---",
        "lru                           36.64  yes",
        "[bold]clairvoyant[/bold]  1,234,567  –",
    ]


def test_a_terminal_gets_a_box_with_the_same_text() -> None:
    text = _print(terminal=True)
    assert "┃" in text and "[bold]clairvoyant[/bold]" in text and "1,234,567" in text


def test_a_row_of_another_width_is_named() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        print_table("t", ["a"], [[1, 2]], Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (False, "no"),
        (0, "0"),
        (0.000012345, "1.234e-05"),
        (99999.5, "100,000"),
        (float("nan"), "nan"),
    ],
)
def test_cells(value: float | None, text: str) -> None:
    assert format_cell(value) == text


def test_progress_is_silent_off_a_terminal() -> None:
    out = io.StringIO()
    with progress("run", 10, Console(file=out, force_terminal=False)) as advance:
        advance(10)
    assert out.getvalue() == ""


def test_progress_counts_on_a_terminal() -> None:
    out = io.StringIO()
    with progress("[run]", 10, Console(file=out, force_terminal=True, width=100)) as advance:
        advance(4)
        advance(6)
    assert "[run]" in out.getvalue() and "10/10" in out.getvalue()
