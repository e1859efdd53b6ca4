"""The settings a user can turn, as composed frozen dataclasses. Reads nothing, imports no heavy library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from belady.api.config import ApiConfig, Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """Which model. `source`: a folder, a .gguf file, a hub id, or None for the default model."""

    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSection:
    """How the engine runs."""

    device: str | None = None
    """`cpu` or `cuda`; None takes CUDA where there is one."""
    threads: Count | None = None
    """CPU threads for the arithmetic; None leaves it to the backend."""
    max_context: Count | None = None
    """Context window in tokens; None takes the model's own."""
    max_running: Count = 64
    step_tokens: Count = 2048
    """Token budget of one step."""
    overlap: bool = True
    """Plan the next step while the last one runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The device KV cache."""

    tokens: Count | None = None
    """Token slots; None takes a share of free memory."""
    page_size: Count = 16
    prefix: bool = True
    """Keep and reuse the KV of common prefixes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A registered policy's name, or `module:Class`, and its settings."""

    name: str
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    evict: PolicyChoice = field(default_factory=lambda: PolicyChoice(name="lru"))
    schedule: PolicyChoice = field(default_factory=lambda: PolicyChoice(name="fcfs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything `belady serve` can be told."""

    model: ModelSection = field(default_factory=ModelSection)
    engine: EngineSection = field(default_factory=EngineSection)
    cache: CacheConfig = field(default_factory=CacheConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
