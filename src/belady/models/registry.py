"""From the description of a model to its program. Knows which file writes which family, and nothing of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from belady.kernels.program import LayerGroup
from belady.models import gemma3, llama, qwen2, qwen3
from belady.models.blocks import layer_types
from belady.models.config import Family, LayerType, ModelConfig
from belady.models.program import Program, Recorder

NETWORKS: Mapping[Family, Callable[[Recorder, ModelConfig], Program]] = MappingProxyType(
    {
        "llama": llama.record,
        "qwen2": qwen2.record,
        "qwen3": qwen3.record,
        "gemma3": gemma3.record,
    }
)


def build_program(config: ModelConfig) -> Program:
    """Record the network that `config` describes. Pure: equal configurations give equal programs."""
    kinds = layer_types(config)
    shapes = config.tensor_shapes()
    recorder = Recorder(
        shapes,
        [_group(config, kind) for kind in kinds],
        [config.inverse_frequencies(kind) for kind in kinds],
    )
    program = NETWORKS[config.family](recorder, config)
    unread = shapes.keys() - {w.name for w in program.weights}
    assert not unread, f"the network never reads {sorted(unread)}"
    return program


def _group(config: ModelConfig, kind: LayerType) -> LayerGroup:
    return LayerGroup(
        name=kind,
        layers=tuple(n for n, have in enumerate(config.layer_types) if have == kind),
        window=config.sliding_window if kind == "window" else None,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
    )
