"""A progress bar for long runs, silent where nobody watches: only a terminal ever sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Call with how many more units are done."""


def _nothing(done: int) -> None:
    """Stands in for the bar where there is no terminal."""


@contextmanager
def progress(label: str, total: int | None, console: Console | None = None) -> Iterator[Advance]:
    """Shows `label` with a bar over `total` units (None: unknown) on standard error while the block runs.

    Yields the function that advances it. Not a terminal: prints nothing and starts no thread.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _nothing
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: int) -> None:
            bar.advance(task, done)

        yield advance
