"""Aligned tables on a terminal, and plain text wherever the output is not one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | int | float | bool | None


def format_cell(value: Cell) -> str:
    """Thousands separated, four significant digits for fractions, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return value


def is_number(value: Cell) -> bool:
    """Whether a cell is aligned to the right."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numeric_columns(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[bool]:
    """Which columns hold numbers (or nothing) only; raises `ValueError` for a row of another width."""
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row has {len(row)} cells for {len(columns)} columns: {row!r}")
    return [
        any(is_number(row[i]) for row in rows) and all(row[i] is None or is_number(row[i]) for row in rows)
        for i in range(len(columns))
    ]


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], console: Console | None = None
) -> None:
    """Prints one table to `console` (default: standard output).

    A terminal gets box drawing and wraps to its width; anything else gets plain columns that are never cut.
    """
    console = console or Console()
    body = list(rows)
    numeric = numeric_columns(columns, body)
    if console.is_terminal:
        table = Table(title=Text(title), title_justify="left", header_style="bold")
        for name, right in zip(columns, numeric, strict=True):
            table.add_column(Text(name), justify="right" if right else "left")
        for row in body:
            table.add_row(*(Text(format_cell(cell)) for cell in row))
        console.print(table)
    else:
        console.print(
            plain_table(title, columns, body), markup=False, highlight=False, emoji=False, soft_wrap=True
        )


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """The table as lines of text: title, header, rule, rows; columns two spaces apart, numbers to the right."""
    numeric = numeric_columns(columns, rows)
    cells = [list(columns), *([" ".join(format_cell(c).split()) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([title, line(cells[0]), rule, *map(line, cells[1:])])
