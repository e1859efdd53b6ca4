"""Where recorded traces lie: the folder that BELADY_DATA names, or the excerpts of a checkout's examples."""

from __future__ import annotations

import os
from pathlib import Path

import belady
from belady.bench.experiment import BenchError, Note

DATA_VARIABLE = "BELADY_DATA"


def locate(file: str, excerpt: str, note: Note) -> tuple[Path, bool]:
    """The trace `file` below BELADY_DATA, or `examples/data/<excerpt>` with a note; and whether it is the whole trace.

    Raises `BenchError` when there is neither.
    """
    folder = os.environ.get(DATA_VARIABLE)
    if folder:
        path = Path(folder) / file
        if not path.is_file():
            raise BenchError(f"{path} does not exist; {DATA_VARIABLE} must name the folder that holds {file}")
        return path, True
    path = Path(belady.__file__).parents[2] / "examples" / "data" / excerpt
    if not path.is_file():
        raise BenchError(
            f"no trace: set {DATA_VARIABLE} to a folder that holds {file}, or run from a checkout with examples/data"
        )
    note(f"{DATA_VARIABLE} is not set: the excerpt {excerpt} stands in for {file}")
    return path, False
