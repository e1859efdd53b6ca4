"""From a TOML table and `a.b=c` overrides to a `Config`. `resolve` is pure; only `load` reads a file.

Unknown keys are errors that name their full path and the nearest known key. Knows nothing of what settings do.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from belady.config.sections import Config


class ConfigProblem(ValueError):  # noqa: N818 - `ConfigError` is the core's
    """A setting is unknown or has a wrong value; the message has its path and what to do."""


def load(path: Path | None, overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None) -> Config:
    """The file's settings (none without a path), then `base`, then `overrides`. Raises `ConfigProblem`."""
    raw: dict[str, Any] = {}
    if path is not None:
        try:
            raw = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigProblem(f"cannot read {path}: {error.strerror}; check --config") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigProblem(f"{path} is not valid TOML: {error}") from error
    return resolve(_merge(raw, base or {}), overrides)


def resolve(raw: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """A complete configuration. Raises `ConfigProblem`."""
    table = _merge({}, raw)
    for override in overrides:
        _apply(table, override)
    _check_keys(Config, table, "")
    try:
        return msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        raise ConfigProblem(_with_choices(_readable(str(error)))) from error


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, Mapping)
        merged[key] = _merge(below if isinstance(below, Mapping) else {}, value) if both else value
    return merged


def _apply(table: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigProblem(f"--set {override!r}: write it as section.key=value, e.g. cache.page_size=16")
    for i, key in enumerate(keys[:-1]):
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigProblem(f"--set {override!r}: {'.'.join(keys[: i + 1])} is not a table")
        table = inner
    table[keys[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    """A TOML value; what is none (a bare word, a path) is taken as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _check_keys(section: type, table: Mapping[str, Any], path: str) -> None:
    hints = get_type_hints(section)
    for key, value in table.items():
        full = f"{path}{key}"
        if key not in hints:
            near = get_close_matches(key, hints, n=1)
            hint = f"; did you mean {path}{near[0]}?" if near else ""
            raise ConfigProblem(f"{full}: there is no such setting{hint} (known: {', '.join(hints)})")
        inner = hints[key]
        if dataclasses.is_dataclass(inner) and isinstance(inner, type):
            if not isinstance(value, Mapping):
                raise ConfigProblem(
                    f"{full}: must be a table with keys of {', '.join(get_type_hints(inner))}"
                )
            _check_keys(inner, value, f"{full}.")


def _with_choices(message: str) -> str:
    """Add what a setting of few values may be."""
    where, _, what = message.partition(": ")
    if not what.startswith("invalid enum value"):
        return message
    hint: Any = Config
    for key in where.split("."):
        hint = get_type_hints(hint)[key]
    return f"{message} (one of {', '.join(map(str, get_args(hint)))})"


def _readable(message: str) -> str:
    what, _, where = message.partition(" - at `$.")
    what = what[:1].lower() + what[1:]
    return f"{where.rstrip('`')}: {what}" if where else what
