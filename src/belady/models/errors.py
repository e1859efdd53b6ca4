"""What a user is told when a model can't be opened. Knows nothing of how models are read."""

from __future__ import annotations

from pathlib import Path


class ModelLoadError(Exception):
    """A model can't be used. Carries where (`path`), what was wrong (`problem`) and what to do (`remedy`, empty where the
    problem says it)."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        said = f"{path}: {problem}"
        super().__init__(f"{said}. {remedy}" if remedy else said)
        self.path = Path(path)
        self.problem = problem
        self.remedy = remedy


class FetchError(ModelLoadError):
    """The default model could not be brought into the cache."""
