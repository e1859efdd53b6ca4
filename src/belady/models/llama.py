"""Llama: pre-norm decoder, rotary positions, grouped queries, gated feed-forward.

After "LLaMA: Open and Efficient Foundation Language Models" (2023). Also SmolLM2 and others of that shape.
"""

from __future__ import annotations

from belady.models import blocks
from belady.models.config import ModelConfig
from belady.models.program import Program, Recorder


def record(r: Recorder, c: ModelConfig) -> Program:
    """Record the network that `c` describes."""
    x = blocks.embedding(r, c)
    for layer in range(c.layers):
        x = blocks.pre_norm_layer(r, c, layer, x)
    return blocks.logits(r, c, x)
