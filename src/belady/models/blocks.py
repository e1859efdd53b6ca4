"""The blocks that the families share: attention, gated feed-forward, and the way in and out of a decoder.

What a block contains (biases, head norms, soft caps) follows the description of the model; how blocks are wired is
each family's own file. Records ops only; touches no tensor.
"""

from __future__ import annotations

from belady.models.config import LayerType, ModelConfig
from belady.models.program import Program, Recorder, Value


def embedding(r: Recorder, c: ModelConfig) -> Value:
    """Token embeddings [T, hidden]."""
    x = r.embed("embed.weight")
    return x if c.embedding_scale == 1.0 else r.scale(x, c.embedding_scale)


def norm(r: Recorder, c: ModelConfig, name: str, x: Value) -> Value:
    """Root-mean-square norm with the weight `name`.weight."""
    return r.rms_norm(x, f"{name}.weight", c.norm_eps)


def attention(r: Recorder, c: ModelConfig, layer: int, x: Value) -> Value:
    """Self-attention of one layer over an already normalised x: [T, hidden]."""
    name = f"layers.{layer}.attn"
    q, k, v = (_linear(r, f"{name}.{part}", x, bias=c.qkv_bias) for part in "qkv")
    if c.qk_norm:
        q = norm(r, c, f"{name}.q_norm", q)
        k = norm(r, c, f"{name}.k_norm", k)
    table = layer_types(c).index(c.layer_types[layer])
    q, k = r.rope(q, table), r.rope(k, table)
    mixed = r.attention(q, k, v, layer=layer, scale=c.attention_scale, softcap=c.attn_logit_softcap)
    return _linear(r, f"{name}.o", mixed, bias=c.o_bias)


def feed_forward(r: Recorder, c: ModelConfig, layer: int, x: Value) -> Value:
    """Gated feed-forward block over an already normalised x: [T, hidden]."""
    name = f"layers.{layer}.ffn"
    gate, up = (_linear(r, f"{name}.{part}", x, bias=c.mlp_bias) for part in ("gate", "up"))
    return _linear(r, f"{name}.down", r.gated(gate, up, c.activation), bias=c.mlp_bias)


def pre_norm_layer(r: Recorder, c: ModelConfig, layer: int, x: Value) -> Value:
    """The usual decoder layer: normalise, transform, add; twice."""
    x = r.add(x, attention(r, c, layer, norm(r, c, f"layers.{layer}.attn_norm", x)))
    return r.add(x, feed_forward(r, c, layer, norm(r, c, f"layers.{layer}.ffn_norm", x)))


def logits(r: Recorder, c: ModelConfig, x: Value) -> Program:
    """Final norm and vocabulary head on the tokens that are sampled; ends the program."""
    x = norm(r, c, "final_norm", r.select_rows(x))
    x = r.linear(x, "embed.weight" if c.tie_embeddings else "lm_head.weight")
    return r.finish(x if c.final_logit_softcap is None else r.soft_cap(x, c.final_logit_softcap))


def layer_types(c: ModelConfig) -> tuple[LayerType, ...]:
    """Layer types in the order of rotary tables and layer groups: 'full' first, those without layers left out."""
    order: tuple[LayerType, ...] = ("full", "window")
    return tuple(kind for kind in order if kind in c.layer_types)


def _linear(r: Recorder, name: str, x: Value, *, bias: bool) -> Value:
    return r.linear(x, f"{name}.weight", f"{name}.bias" if bias else None)
