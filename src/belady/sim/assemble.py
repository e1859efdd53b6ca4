"""From a scenario to a simulation that can run: sizes from model and device, policies, cost, source.

Looks at trace files and, for `this-cpu`, at the machine; runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from belady.core.config import ConfigError, CoreConfig, GroupConfig
from belady.core.scheduler import Scheduler
from belady.policy import registry
from belady.sim.cost import roofline
from belady.sim.hardware import Hardware, hardware
from belady.sim.loop import Simulation
from belady.sim.model import DTYPE_BYTES, LayerGroup, Model, model
from belady.sim.replica import modelled
from belady.sim.scenario import PolicyChoice, Scenario, ScenarioError
from belady.sim.workload.base import Source
from belady.sim.workload.build import build, locate

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

    Raises `ScenarioError`, `WorkloadError`, `FormatError`, `CatalogError`, `PolicyError` or `ConfigError`.
    """
    fleet = scenario.fleet
    for name, least in (("replicas", 1), ("devices", 1)):
        if getattr(fleet, name) < least:
            raise ScenarioError(f"fleet.{name}: must be at least {least}")
    if fleet.dtype not in DTYPE_BYTES:
        raise ScenarioError(f"fleet.dtype: unknown format {fleet.dtype!r} (known: {', '.join(DTYPE_BYTES)})")
    device, network = hardware(fleet.hardware, limits), model(fleet.model)
    core = core_config(scenario, device, network)
    cost = roofline(device, network, scenario.cost, dtype=fleet.dtype, count=fleet.devices)
    source, notes = _source(scenario, core, folder, environment)
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
    return registry.load(kind, choice.name, choice.config, path=f"policy.{kind}.config")


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
                f"offer {device.memory * fleet.devices * fleet.memory_share / 1e9:.1f} GB, which leaves no KV cache; "
                "use more fleet.devices, a larger device or a smaller model"
            )
    return [pages, *(min(n, max(pages, 2)) for n in wanted)]
