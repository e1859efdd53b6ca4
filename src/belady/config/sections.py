"""The settings a user can turn, as composed frozen dataclasses. Reads nothing, imports no heavy library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from belady.api.config import ApiConfig, Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """Which model. `source`: a folder, a .gguf file, a hub id, or None for the default model."""

    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSection:
    """How the engine runs."""

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Compute threads; None: the library's choice."""
    max_context: Count | None = None
    """Longest prompt plus output in tokens; None: what the model was made for."""
    max_running: Count = 64
    """Requests that compute at the same time."""
    step_tokens: Count = 512
    """Most tokens computed in one step; longer prompts are prefilled in chunks."""
    max_repeat: Count = 64
    """Most decode iterations planned at once while nothing else happens."""
    overlap: bool = True
    """Plan the next step while one runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The KV cache on the device."""

    bytes: Count = 1 << 30
    page_size: Count = 16
    """Token slots per page."""
    prefix: bool = True
    """Keep and reuse the KV of common prefixes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictSection:
    """What leaves the cache first: a registered policy's name, or `module:Class`, and its settings."""

    name: str = "lru"
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSection:
    """Who runs next: a registered policy's name, or `module:Class`, and its settings."""

    name: str = "fcfs"
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """One policy per kind of decision."""

    evict: EvictSection = field(default_factory=EvictSection)
    schedule: ScheduleSection = field(default_factory=ScheduleSection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything `belady serve` can be told."""

    model: ModelSection = field(default_factory=ModelSection)
    engine: EngineSection = field(default_factory=EngineSection)
    cache: CacheConfig = field(default_factory=CacheConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
