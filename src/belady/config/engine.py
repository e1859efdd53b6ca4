"""From a `Config` to what the engine takes. Imports the engine's settings, never its backend."""

from __future__ import annotations

from belady.config.sections import Config
from belady.engine.sizes import EngineConfig


def engine_config(config: Config) -> EngineConfig:
    """The engine's part of `config`."""
    engine, cache, policy = config.engine, config.cache, config.policy
    return EngineConfig(
        page_size=cache.page_size,
        cache_bytes=cache.bytes,
        prefix_cache=cache.prefix,
        max_running=engine.max_running,
        step_tokens=engine.step_tokens,
        max_repeat=engine.max_repeat,
        max_context=engine.max_context,
        overlap=engine.overlap,
        dtype=engine.dtype,
        device=engine.device,
        threads=engine.threads,
        evict=policy.evict.name,
        evict_config=policy.evict.config,
        schedule=policy.schedule.name,
        schedule_config=policy.schedule.config,
    )
