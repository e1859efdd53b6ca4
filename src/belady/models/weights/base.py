"""The port that weight files stand behind, and checked access to their metadata. Knows no file format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from belady.models.errors import ModelLoadError

FloatArray = npt.NDArray[np.float32]

MAX_LAYERS = 4096
"""More than any published model has; a count that is believed costs memory for every layer it names."""


class WeightSource(Protocol):
    """Named tensors and the metadata beside them, under the names that the file uses."""

    @property
    def path(self) -> Path:
        """The file or folder, for messages."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the file says about the model, as plain Python values."""

    def names(self) -> list[str]:
        """All tensor names in file order."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape in numpy order (a linear layer is [out, in]). Reads no tensor data. KeyError if absent."""

    def stored_type(self, name: str) -> str:
        """How the file stores the tensor, in the format's own word (`Q4_K`, `BF16`). KeyError if absent."""

    def get(self, name: str) -> FloatArray:
        """The tensor as a fresh writable float32 array, dequantised. KeyError if absent.

        Raises ModelLoadError if it is stored in a way that this reader can't turn into numbers.
        """

    def close(self) -> None:
        """Release the file. Idempotent; arrays handed out stay valid."""


class Fields:
    """Reads values out of metadata and refuses, with the key's name, what can't be a model's dimension."""

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self.values = values
        self.prefix = prefix

    def raw(self, key: str) -> Any:
        """The value, None when absent."""
        return self.values.get(self.prefix + key)

    def fail(self, key: str, problem: str) -> ModelLoadError:
        """The error to raise about `key`."""
        return ModelLoadError(
            self.path, f"`{self.prefix}{key}` {problem}", "Get the file again, or convert the model anew"
        )

    def unsupported(self, key: str, problem: str) -> ModelLoadError:
        """The error to raise about `key` of a model that is sound, but not for us."""
        return ModelLoadError(self.path, f"`{self.prefix}{key}` {problem}", "Use another model")

    def size(self, key: str, default: int | None = None, *, most: int = 2**31 - 1) -> int:
        """A positive count up to `most`; `default` when absent, an error when there is none."""
        value = self.raw(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.fail(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise self.fail(key, f"is {_short(value)}, which is not a positive number of sensible size")
        return value

    def optional_size(self, key: str) -> int | None:
        """As `size`, None when absent."""
        return None if self.raw(key) is None else self.size(key)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number; `default` when absent, an error when there is none."""
        value = self.raw(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.fail(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.fail(key, f"is {_short(value)}, which is not a positive number")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        """As `number`, None when absent."""
        return None if self.raw(key) is None else self.number(key)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; `default` when absent."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"is {_short(value)}, which is neither true nor false")
        return value

    def ids(self, key: str) -> tuple[int, ...]:
        """Zero or more token ids, written as one number or as a list."""
        value = self.raw(key)
        items = [] if value is None else value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or item < 0:
                raise self.fail(key, f"is {_short(value)}, which is not a token id or a list of them")
        return tuple(items)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
