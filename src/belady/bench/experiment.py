"""What an experiment is, and the list of those that exist. Imports an experiment only when it is asked for.

An experiment is a module with `CLAIM` (one sentence), `params(quick)` (its settings, a frozen dataclass) and
`run(params, note)` (its results). It reads clocks and files itself, prints nothing, and knows no report or argument.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Protocol, cast

from belady.report.bench_json import Result

Note = Callable[[str], None]
"""Takes a sentence that a reader of the results must know, such as what stood in for missing data."""

EXPERIMENTS = ("limits", "prefix", "evict", "core", "simspeed", "serve")
"""Names, each that of a module of this package."""


class BenchError(RuntimeError):
    """An experiment that cannot run here; the message says what is missing and what to do."""


class UnknownExperimentError(ValueError):
    """A name that no experiment has; the message lists those that exist."""


class Experiment(Protocol):
    """What each module of `EXPERIMENTS` offers."""

    CLAIM: str

    def params(self, quick: bool) -> Any:
        """The settings of a full or a quick run: a frozen dataclass of plain values."""
        ...

    def run(self, params: Any, note: Note) -> list[Result]:
        """Measure. Raises `BenchError` where this machine or its data do not allow it."""
        ...


def experiment(name: str) -> Experiment:
    """The experiment called `name`, imported now; raises `UnknownExperimentError`."""
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownExperimentError(
            f"no experiment is called {name!r}{hint} There are: {', '.join(EXPERIMENTS)}"
        )
    return cast(Experiment, importlib.import_module(f"belady.bench.{name}"))
