"""Where the format tests find their traces: the shipped excerpts, and the full files through BELADY_DATA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def excerpts() -> Path:
    return Path(__file__).parents[2] / "examples" / "data"


@pytest.fixture(scope="session")
def full_data() -> Path:
    folder = os.environ.get("BELADY_DATA")
    if not folder:
        pytest.skip("BELADY_DATA is unset: the full public traces are not on this machine")
    return Path(folder)
