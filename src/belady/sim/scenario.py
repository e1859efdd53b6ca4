"""A simulation as one TOML file: read strictly, overridden by `a.b=c`, and kept whole so that a run can be repeated.

Pure values: nothing here opens a trace or looks at the machine. An unknown key is an error that names its path.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from belady.sim.cost import CostConfig
from belady.sim.ranges import Budget, Context, Count, FileName, Seconds, Servers, Share, Tokens, allowed
from belady.sim.workload.build import WorkloadConfig

T = TypeVar("T")


class ScenarioError(ValueError):
    """A scenario that cannot be run; the message names the setting and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """`replicas` equal servers of `devices` devices each, all serving `model`."""

    hardware: str
    model: str
    replicas: Servers = 1
    devices: Servers = 1
    dtype: str = "bfloat16"
    """Number format of weights, KV and arithmetic."""
    memory_share: Share = 0.9
    """Share of device memory for weights and KV."""
    request_seconds: Seconds = 0.0
    """What the API spends on a request before its replica sees it."""
    overlap: bool = True
    """Plan the next step while one runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Sizes of each replica's core; see `CoreConfig`. None: from the model (context) or the memory (cache)."""

    page_size: Count = 16
    key_tokens: Count = 1
    max_context: Context | None = None
    cache_tokens: Tokens | None = None
    max_running: Count = 256
    step_tokens: Tokens = 8192
    step_seconds: Budget | None = None
    max_repeat: Count = 64
    prefix_cache: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A policy by registered name or `module:Class`, with its settings."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesConfig:
    evict: PolicyChoice = PolicyChoice(name="lru")
    schedule: PolicyChoice = PolicyChoice(name="fcfs")
    route: PolicyChoice = PolicyChoice(name="prefix_affinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything a run depends on, besides the trace file itself."""

    name: FileName
    fleet: FleetConfig
    workload: WorkloadConfig
    title: str = ""
    seed: int = 0
    core: LimitsConfig = LimitsConfig()
    policy: PoliciesConfig = PoliciesConfig()
    cost: CostConfig = field(default_factory=CostConfig)


def load(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in `path` with each override `a.b=c` applied (c as TOML, else as text). Raises `ScenarioError`."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read ({error}); name a scenario file") from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: not TOML: {error}") from error
    for override in overrides:
        _override(raw, override)
    return decode(raw)


def decode(raw: Mapping[str, Any]) -> Scenario:
    """A scenario from plain data. Raises `ScenarioError` with the path of the first thing that is wrong."""
    return _decode(raw, Scenario)


def _override(raw: dict[str, Any], text: str) -> None:
    path, sign, value = text.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        raise ScenarioError(f"--set {text}: write it as section.key=value")
    try:
        parsed: Any = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    node = raw
    for depth, key in enumerate(keys[:-1]):
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ScenarioError(f"--set {text}: {'.'.join(keys[: depth + 1])} is a value, not a section")
    node[keys[-1]] = parsed


def _decode(raw: Mapping[str, Any], cls: type[T]) -> T:
    _check_keys(raw, cls, "")
    try:
        return msgspec.convert(raw, cls)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise ScenarioError(_explain(raw, cls, what, where.rstrip("`").lstrip("."), error)) from error


def _explain(raw: Any, cls: type, what: str, path: str, error: Exception) -> str:
    """Full path of the setting, its value and what it may be."""
    if isinstance(error.__cause__, ValueError):
        # Raised by a section about its own settings: its text begins with the key.
        return f"{path}.{what}"
    value, hint = raw, cls
    for key in path.split(".") if path else ():
        if not isinstance(value, Mapping) or key not in value:
            return f"{path}: {what}"
        owner = _dataclass_of(hint)
        hint = get_type_hints(owner, include_extras=True)[key] if owner is not None else Any
        value = value[key]
    may_be = allowed(hint)
    if may_be is None or isinstance(value, Mapping):
        return f"{path or 'scenario'}: {what}"
    if what.endswith(f", got `{type(value).__name__}`"):
        return f"{path}: {what} ({may_be})"
    return f"{path}: {value!r} is not allowed; it must be {may_be}"


def _check_keys(raw: Any, cls: type, path: str) -> None:
    """Unknown keys, anywhere, before types: a typo is reported as one."""
    if not isinstance(raw, Mapping):
        return
    known = {f.name for f in fields(cls)}
    for key in raw:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ScenarioError(f"{path}{key}: no such setting{hint} (known: {', '.join(sorted(known))})")
    hints = get_type_hints(cls)
    for key, value in raw.items():
        inner = _dataclass_of(hints[key])
        if inner is not None:
            _check_keys(value, inner, f"{path}{key}.")


def _dataclass_of(hint: Any) -> type | None:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((o for o in options if isinstance(o, type) and is_dataclass(o)), None)
