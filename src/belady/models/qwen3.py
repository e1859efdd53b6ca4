"""Qwen3: the Llama shape with a norm on every query and key head before the rotation.

After "Qwen3 Technical Report" (2025).
"""

from __future__ import annotations

from belady.models import blocks
from belady.models.config import ModelConfig
from belady.models.program import Program, Recorder


def record(r: Recorder, c: ModelConfig) -> Program:
    """Record the network that `c` describes."""
    assert c.qk_norm, "Qwen3 normalises queries and keys"
    x = blocks.embedding(r, c)
    for layer in range(c.layers):
        x = blocks.pre_norm_layer(r, c, layer, x)
    return blocks.logits(r, c, x)
