"""Reading the shipped tables of devices and models into typed entries. Knows nothing of what the entries mean."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from importlib import resources
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class CatalogError(ValueError):
    """An entry that does not exist or lacks what is asked of it; the message lists what there is."""


def load_table(file: str, entry_type: type[T]) -> dict[str, T]:
    """Entries of a shipped TOML table by name, `name` filled in."""
    raw: dict[str, dict[str, Any]] = tomllib.loads(
        resources.files("belady.sim").joinpath(file).read_text(encoding="utf-8")
    )
    return {name: msgspec.convert({"name": name, **entry}, entry_type) for name, entry in raw.items()}


def pick(kind: str, name: str, table: dict[str, T]) -> T:
    """The entry called `name`; raises `CatalogError` with the near ones and the whole list."""
    entry = table.get(name.lower())
    if entry is not None:
        return entry
    near = get_close_matches(name.lower(), table, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise CatalogError(f"no {kind} is called {name!r}{hint} Known: {', '.join(table)}")
