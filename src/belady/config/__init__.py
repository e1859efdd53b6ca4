"""One configuration for a server: frozen sections, one TOML file, `--set a.b=c`."""

from belady.config.resolve import ConfigProblem, load, resolve
from belady.config.sections import (
    CacheConfig,
    Config,
    EngineSection,
    EvictSection,
    ModelSection,
    PolicyConfig,
    ScheduleSection,
)

__all__ = [
    "CacheConfig",
    "Config",
    "ConfigProblem",
    "EngineSection",
    "EvictSection",
    "ModelSection",
    "PolicyConfig",
    "ScheduleSection",
    "load",
    "resolve",
]
