"""What a user is told when a model can't be opened. Knows nothing of how models are read."""

from __future__ import annotations

from pathlib import Path


class ModelLoadError(Exception):
    """A model can't be used. Carries where (`path`), what was wrong (`problem`) and what to do (`remedy`)."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = Path(path)
        self.problem = problem
        self.remedy = remedy


class FetchError(ModelLoadError):
    """The default model could not be brought into the cache."""
