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
from belady.sim.workload.build import WorkloadConfig

T = TypeVar("T")


class ScenarioError(ValueError):
    """A scenario that cannot be run; the message names the setting and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """`replicas` equal servers of `devices` devices each, all serving `model`."""

    hardware: str
    model: str
    replicas: int = 1
    devices: int = 1
    dtype: str = "bfloat16"
    """Number format of weights, KV and arithmetic."""
    memory_share: float = 0.9
    """Share of device memory for weights and KV."""
    request_seconds: float = 0.0
    """What the API spends on a request before its replica sees it."""
    overlap: bool = True
    """Plan the next step while one runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Sizes of each replica's core; see `CoreConfig`. None: from the model (context) or the memory (cache)."""

    page_size: int = 16
    key_tokens: int = 1
    max_context: int | None = None
    cache_tokens: int | None = None
    max_running: int = 256
    step_tokens: int = 8192
    step_seconds: float | None = None
    max_repeat: int = 64
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

    name: str
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
    return _decode(raw, Scenario, "")


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


def _decode(raw: Mapping[str, Any], cls: type[T], path: str) -> T:
    _check_keys(raw, cls, path)
    try:
        return msgspec.convert(raw, cls)
    except msgspec.ValidationError as error:
        message = str(error)
        what, _, where = message.partition(" - at `$")
        raise ScenarioError(f"{(path + where.rstrip('`')).lstrip('.') or 'scenario'}: {what}") from error


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
