"""From a scenario to a simulation that can run: sizes from model and device, policies, cost, source.

Looks at trace files and, for `this-cpu`, at the machine; runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from belady.core.config import ConfigError, CoreConfig, GroupConfig
from belady.core.scheduler import Scheduler
from belady.policy import registry
from belady.sim.catalog import CatalogError
from belady.sim.cost import roofline
from belady.sim.hardware import Hardware, hardware
from belady.sim.loop import Simulation
from belady.sim.model import DTYPE_BYTES, LayerGroup, Model, model
from belady.sim.replica import modelled
from belady.sim.scenario import PolicyChoice, Scenario, ScenarioError
from belady.sim.workload.base import Source
from belady.sim.workload.build import build, locate

MOST_PAGES = 1 << 26
"""Pages of all replicas together: each costs this process some 40 bytes."""
WINDOW_SLACK = 4
"""Pages of a sliding-window group, as a multiple of what running requests need: the rest keeps windows of cached runs."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A simulation and what was resolved for it."""

    simulation: Simulation
    source: Source
    core: CoreConfig
    device: Hardware
    model: Model
    notes: list[str]


def assemble(
    scenario: Scenario, folder: Path, environment: Mapping[str, str], limits: Path | None = None
) -> Assembly:
    """Build everything. `folder` is where relative trace paths start, `limits` the measured limits of this machine.

    Raises `ScenarioError`, `WorkloadError`, `FormatError` or `PolicyError`.
    """
    fleet = scenario.fleet
    if fleet.dtype not in DTYPE_BYTES:
        raise ScenarioError(f"fleet.dtype: unknown format {fleet.dtype!r} (known: {', '.join(DTYPE_BYTES)})")
    device, network = _fleet(scenario, limits)
    core = core_config(scenario, device, network)
    cost = roofline(device, network, scenario.cost, dtype=fleet.dtype, count=fleet.devices)
    source, notes = _source(scenario, core, folder, environment)
    if fleet.replicas > 1 and scenario.policy.evict.name == "clairvoyant":
        notes.append(
            f"clairvoyant knows when each prefix is next used by any of the {fleet.replicas} replicas, not by the one "
            "that caches it: a strong policy here, the ceiling only with fleet.replicas = 1"
        )
    policy = scenario.policy
    # The core asks for predictions only where it has a time budget to meet.
    predictor = cost if core.step_seconds is not None else None
    schedulers = [
        Scheduler(
            core, evict=_load("evict", policy.evict), order=_load("schedule", policy.schedule), cost=predictor
        )
        for _ in range(fleet.replicas)
    ]
    simulation = Simulation(
        schedulers,
        modelled(cost),
        source,
        _load("route", policy.route),
        depth=2 if fleet.overlap else 1,
        request_seconds=fleet.request_seconds,
    )
    return Assembly(simulation, source, core, device, network, notes)


def _fleet(scenario: Scenario, limits: Path | None) -> tuple[Hardware, Model]:
    """Device and model by name, each error with the setting that it is about."""
    fleet = scenario.fleet
    key = "hardware"
    try:
        device = hardware(fleet.hardware, limits)
        key = "model"
        network = model(fleet.model)
        key = "dtype"
        device.rate(fleet.dtype)
    except CatalogError as error:
        raise ScenarioError(f"fleet.{key}: {error}") from error
    return device, network


def _source(
    scenario: Scenario, core: CoreConfig, folder: Path, environment: Mapping[str, str]
) -> tuple[Source, list[str]]:
    workload = scenario.workload
    path, note = None, None
    if workload.path is not None:
        path, note = locate(workload, folder, environment)
    source = build(
        workload,
        path,
        max_context=core.max_context,
        key_tokens=core.key_tokens,
        seed=scenario.seed,
        clairvoyant=workload.next_use or scenario.policy.evict.name == "clairvoyant",
    )
    return source, [] if note is None else [note]


def _load(kind: str, choice: PolicyChoice) -> Any:
    config, name = f"policy.{kind}.config", f"policy.{kind}.name"
    try:
        return registry.load(kind, choice.name, choice.config, path=config)
    except registry.PolicyError as error:
        message = str(error)
        if message.startswith(f"{config}.") or isinstance(error.__cause__, msgspec.ValidationError):
            raise
        # Not about a setting, hence about the policy that is named.
        raise registry.PolicyError(f"{name}{message.removeprefix(config)}") from error


def core_config(scenario: Scenario, device: Hardware, network: Model) -> CoreConfig:
    """Sizes of one replica's core: the cache takes what memory the weights leave, unless `core.cache_tokens` says."""
    limits = scenario.core
    groups = tuple(
        GroupConfig(
            name=group.name,
            pages=pages,
            window=group.window,
            bytes_per_token=round(network.kv_bytes_per_token(group, scenario.fleet.dtype)),
        )
        for group, pages in zip(network.groups, _pages(scenario, device, network), strict=True)
    )
    try:
        return CoreConfig(
            groups=groups,
            page_size=limits.page_size,
            key_tokens=limits.key_tokens,
            max_context=limits.max_context or network.max_context,
            max_running=limits.max_running,
            step_tokens=limits.step_tokens,
            step_seconds=limits.step_seconds,
            max_repeat=limits.max_repeat,
            prefix_cache=limits.prefix_cache,
        )
    except ConfigError as error:
        raise ScenarioError(f"core.{error}") from error


def _pages(scenario: Scenario, device: Hardware, network: Model) -> list[int]:
    """Pages per layer group; window groups first take what running requests need times `WINDOW_SLACK`."""
    fleet, limits = scenario.fleet, scenario.core
    size = limits.page_size
    full, *windowed = network.groups

    def page_bytes(group: LayerGroup) -> float:
        return size * network.kv_bytes_per_token(group, fleet.dtype)

    def window_pages(group: LayerGroup) -> int:
        assert group.window is not None
        per_row = -(-group.window // size) + 2
        return WINDOW_SLACK * (limits.max_running * per_row + -(-limits.step_tokens // size))

    wanted = [window_pages(group) for group in windowed]
    if limits.cache_tokens is not None:
        pages = limits.cache_tokens // size
    else:
        weights = network.parameters * DTYPE_BYTES[fleet.dtype]
        room = device.memory * fleet.devices * fleet.memory_share - weights
        left = room - sum(n * page_bytes(g) for n, g in zip(wanted, windowed, strict=True))
        pages = int(left / page_bytes(full))
        if pages < 2:
            raise ScenarioError(
                f"fleet: {network.name} needs {weights / 1e9:.1f} GB for its weights, {fleet.devices} x {device.name} "
                f"offer {device.memory * fleet.devices * fleet.memory_share / 1e9:.1f} GB, which leaves less "
                f"than 2 pages of {size} tokens of KV cache; use more fleet.devices, a larger device, a smaller model or "
                "a smaller core.page_size"
            )
    return _checked(scenario, [pages, *(min(n, max(pages, 2)) for n in wanted)], windowed)


def _checked(scenario: Scenario, pages: list[int], windowed: Sequence[LayerGroup]) -> list[int]:
    """`pages`, when they can hold anything; else the error names the setting they come from."""
    size, given = scenario.core.page_size, scenario.core.cache_tokens
    key = "fleet.memory_share" if given is None else "core.cache_tokens"
    least = max([2, *(-(-group.window // size) + 2 for group in windowed if group.window is not None)])
    if min(pages) < least:
        raise ScenarioError(
            f"{key}: {'what it leaves for the cache' if given is None else given} is less than the {least} pages of "
            f"{size} tokens that {scenario.fleet.model} needs; make it at least {least * size} tokens, or "
            "core.page_size smaller"
        )
    replicas = scenario.fleet.replicas
    if replicas * sum(pages) > MOST_PAGES:
        raise ScenarioError(
            f"core.page_size: {replicas:,} x {sum(pages) * size:,} tokens of cache in pages of {size} are more pages "
            f"than can be simulated ({MOST_PAGES:,}); make pages larger, core.cache_tokens or fleet.replicas smaller"
        )
    return pages
