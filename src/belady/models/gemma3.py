"""Gemma 3 (text): norms on both sides of each block, scaled embeddings, five window layers to one full one.

After "Gemma 3 Technical Report" (2025). Window and full layers rotate with different base frequencies.
"""

from __future__ import annotations

from belady.models import blocks
from belady.models.config import ModelConfig
from belady.models.program import Program, Recorder


def record(r: Recorder, c: ModelConfig) -> Program:
    """Record the network that `c` describes."""
    assert c.post_norms and c.qk_norm, "Gemma 3 normalises after each block, and queries and keys"
    x = blocks.embedding(r, c)
    for n in range(c.layers):
        name = f"layers.{n}"
        mixed = blocks.attention(r, c, n, blocks.norm(r, c, f"{name}.attn_norm", x))
        x = r.add(x, blocks.norm(r, c, f"{name}.attn_post_norm", mixed))
        fed = blocks.feed_forward(r, c, n, blocks.norm(r, c, f"{name}.ffn_norm", x))
        x = r.add(x, blocks.norm(r, c, f"{name}.ffn_post_norm", fed))
    return blocks.logits(r, c, x)
