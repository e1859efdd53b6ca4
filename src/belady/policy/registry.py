"""Finding policies: entry points of the group `belady.policies`, the built-in ones, or a dotted `module:Class`.

Installing a package never activates a policy: it runs only when a configuration names it. Settings are decoded
strictly; an unknown key is an error that names its path.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Literal, get_type_hints

import msgspec

API = 1
"""Version of the policy protocols; a registration made for another one is refused."""

Stability = Literal["alpha", "beta", "stable"]
KINDS = ("evict", "schedule", "route")


class PolicyError(ValueError):
    """A policy cannot be found or configured; the message says which, where and what exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One policy on offer. `target` is `module:Class`; the class takes its frozen config as only argument.

    Stability: alpha promises nothing; beta is feature-complete and removed no sooner than two minor releases after
    deprecation; stable stays compatible.
    """

    kind: str
    name: str
    target: str
    stability: Stability = "alpha"
    origin: str = "belady"
    api: int = API
    deprecated_in: str | None = None
    removed_in: str | None = None
    replaced_by: str | None = None

    @property
    def summary(self) -> str:
        """First line of the policy module's docstring."""
        module = importlib.import_module(self.target.partition(":")[0])
        return (inspect.getdoc(module) or "").partition("\n")[0]


BUILT_IN = (
    Registration(kind="evict", name="lru", target="belady.policy.evict.lru:Lru", stability="beta"),
    Registration(kind="evict", name="clairvoyant", target="belady.policy.evict.clairvoyant:Clairvoyant"),
    Registration(kind="schedule", name="fcfs", target="belady.policy.schedule.fcfs:Fcfs", stability="beta"),
    Registration(kind="route", name="round_robin", target="belady.policy.route.round_robin:RoundRobin"),
    Registration(kind="route", name="least_tokens", target="belady.policy.route.least_tokens:LeastTokens"),
    Registration(
        kind="route", name="prefix_affinity", target="belady.policy.route.prefix_affinity:PrefixAffinity"
    ),
)


def available(kind: str | None = None) -> list[Registration]:
    """Built-in and installed policies, by kind and name. Loads no policy code."""
    found = {(r.kind, r.name): r for r in BUILT_IN}
    for point in entry_points(group="belady.policies"):
        # An entry point is named `kind.name`; its value is the class.
        point_kind, _, name = point.name.partition(".")
        origin = point.dist.name if point.dist is not None else "unknown"
        found.setdefault(
            (point_kind, name), Registration(kind=point_kind, name=name, target=point.value, origin=origin)
        )
    return sorted((r for r in found.values() if kind in (None, r.kind)), key=lambda r: (r.kind, r.name))


def load(kind: str, name: str, config: Mapping[str, Any] | None = None, *, path: str | None = None) -> Any:
    """Make the policy `name` (a registered name or `module:Class`) of `kind`, with its settings from `config`.

    `path` is where the settings stand in the user's configuration, for messages; by default `policy.KIND.config`, and
    `policy.KIND.name` for what is wrong with the name. Raises `PolicyError`.
    """
    cls = _resolve(kind, name, path or f"policy.{kind}.name")
    return cls(_decode(cls, config or {}, path or f"policy.{kind}.config"))


def _resolve(kind: str, name: str, path: str) -> type:
    if kind not in KINDS:
        raise PolicyError(f"unknown kind of policy {kind!r}; kinds are {', '.join(KINDS)}")
    if ":" in name:
        return _import(name, path)
    registered = {r.name: r for r in available(kind)}
    if name not in registered:
        near = get_close_matches(name, registered, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise PolicyError(
            f"{path}: no {kind} policy is called {name!r}{hint} "
            f"Known: {', '.join(registered)}. A class of your own is named as module:Class."
        )
    registration = registered[name]
    if registration.api != API:
        raise PolicyError(f"{path}: {name!r} is made for policy interface {registration.api}, this is {API}")
    return _import(registration.target, path)


def _import(target: str, path: str) -> type:
    module_name, _, attribute = target.partition(":")
    try:
        cls = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise PolicyError(f"{path}: cannot load {target!r}: {error}") from error
    if not inspect.isclass(cls):
        raise PolicyError(f"{path}: {target!r} is not a class")
    return cls


def _decode(cls: type, config: Mapping[str, Any], path: str) -> Any:
    """The policy's config object: the annotated type of its constructor's only parameter."""
    hints = get_type_hints(inspect.getattr_static(cls, "__init__"))
    hints.pop("return", None)
    if len(hints) != 1:
        raise PolicyError(f"{path}: {cls.__name__} must take one annotated argument, its config dataclass")
    (config_type,) = hints.values()
    fields = set(getattr(config_type, "__dataclass_fields__", {}))
    for key in config:
        if key not in fields:
            near = get_close_matches(key, fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(sorted(fields)) or "none"
            raise PolicyError(f"{path}.{key}: {cls.__name__} has no such setting{hint} (known: {known})")
    try:
        return msgspec.convert(dict(config), config_type)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{path}: {error}") from error
