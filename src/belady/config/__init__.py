"""One configuration for a server: frozen sections, one TOML file, `--set a.b=c`."""

from belady.config.resolve import ConfigProblem, load, resolve
from belady.config.sections import (
    CacheConfig,
    Config,
    EngineSection,
    ModelSection,
    PolicyChoice,
    PolicyConfig,
)

__all__ = [
    "CacheConfig",
    "Config",
    "ConfigProblem",
    "EngineSection",
    "ModelSection",
    "PolicyChoice",
    "PolicyConfig",
    "load",
    "resolve",
]
