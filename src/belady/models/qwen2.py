"""Qwen2 and Qwen2.5: the Llama shape with biases on the query, key and value projections.

After "Qwen2 Technical Report" (2024). Upper layers may use a sliding window.
"""

from __future__ import annotations

from belady.models import blocks
from belady.models.config import ModelConfig
from belady.models.program import Program, Recorder


def record(r: Recorder, c: ModelConfig) -> Program:
    """Record the network that `c` describes."""
    assert c.qkv_bias, "Qwen2 projections have biases"
    x = blocks.embedding(r, c)
    for layer in range(c.layers):
        x = blocks.pre_norm_layer(r, c, layer, x)
    return blocks.logits(r, c, x)
