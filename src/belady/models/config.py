"""One description of a decoder-only transformer, whatever file format it came from.

Network code reads only this: it does not know whether the weights lie in safetensors or in GGUF, nor how
either of them names a field. Parsing lives with the sources; this file holds data and the arithmetic of
rotary frequencies, which both sources must agree on. Llama-3 frequency scaling follows "The Llama 3 Herd of
Models" (2024); position interpolation follows "Extending Context Window of Large Language Models via
Positional Interpolation" (2023).

Canonical tensor names (shapes are numpy row-major, a linear layer is `[out, in]`):

    embed.weight                      [vocab, hidden]
    final_norm.weight                 [hidden]
    lm_head.weight                    [vocab, hidden]          absent when `tie_embeddings`
    layers.N.attn_norm.weight         [hidden]                 before attention
    layers.N.attn.q.weight            [heads * head_dim, hidden]       rows in rotate-half order
    layers.N.attn.k.weight            [kv_heads * head_dim, hidden]    rows in rotate-half order
    layers.N.attn.v.weight            [kv_heads * head_dim, hidden]
    layers.N.attn.o.weight            [hidden, heads * head_dim]
    layers.N.attn.{q,k,v}.bias        [rows of the weight]     when `qkv_bias`
    layers.N.attn.o.bias              [hidden]                 when `o_bias`
    layers.N.attn.{q,k}_norm.weight   [head_dim]               when `qk_norm`
    layers.N.attn_post_norm.weight    [hidden]                 when `post_norms`: after attention, before the residual add
    layers.N.ffn_norm.weight          [hidden]                 before the feed-forward block
    layers.N.ffn.{gate,up}.weight     [ffn, hidden]
    layers.N.ffn.down.weight          [hidden, ffn]
    layers.N.ffn.{gate,up,down}.bias                           when `mlp_bias`
    layers.N.ffn_post_norm.weight     [hidden]                 when `post_norms`: after the block, before the residual add

Norm weights multiply as they are: the `1 + w` of Gemma checkpoints is folded in by the source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Family = Literal["llama", "qwen2", "qwen3", "gemma3"]
LayerType = Literal["full", "window"]
Activation = Literal["silu", "gelu_tanh"]

FAMILIES: tuple[Family, ...] = ("llama", "qwen2", "qwen3", "gemma3")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRope:
    """Every rotary frequency is divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Rope:
    """Low frequencies are divided by `factor`, high ones kept, those between blended smoothly."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeDivisors:
    """One divisor per rotary frequency (head_dim / 2 of them), as GGUF files store Llama-3 scaling."""

    divisors: tuple[float, ...]


RopeScaling = LinearRope | Llama3Rope | RopeDivisors


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape and numerics of one network. Positions and windows in tokens, ids in the tokenizer's vocabulary."""

    family: Family
    vocab_size: int  # rows of the embedding; may exceed the tokenizer's vocabulary (padding rows)
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    norm_eps: float
    rope_theta: float  # rotary base of 'full' layers
    context_length: int
    layer_types: tuple[LayerType, ...]  # one per layer
    tie_embeddings: bool
    rope_local_theta: float | None = None  # rotary base of 'window' layers; None: same as rope_theta
    rope_scaling: RopeScaling | None = None  # of 'full' layers; with rope_local_theta None, of all layers
    sliding_window: int | None = None  # a 'window' layer sees this many keys, the query's own included
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    activation: Activation = "silu"
    embedding_scale: float = 1.0  # multiplies the embedding rows
    query_pre_attn_scalar: float | None = None  # attention scale is this ** -0.5; None: head_dim
    attn_logit_softcap: float | None = None
    final_logit_softcap: float | None = None
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None

    def __post_init__(self) -> None:
        assert len(self.layer_types) == self.layers, "one layer type per layer"
        assert self.heads % self.kv_heads == 0, "query heads share kv heads evenly"
        assert self.sliding_window is not None or "window" not in self.layer_types, (
            "window layers need a size"
        )

    @property
    def attention_scale(self) -> float:
        """Factor on query-key dot products before the softmax."""
        return float(self.query_pre_attn_scalar or self.head_dim) ** -0.5

    def inverse_frequencies(self, layer_type: LayerType) -> tuple[float, ...]:
        """Rotary angle per position for each of the head_dim / 2 pairs (i, i + head_dim / 2)."""
        local = layer_type == "window" and self.rope_local_theta is not None
        theta = self.rope_local_theta if local and self.rope_local_theta is not None else self.rope_theta
        plain = [theta ** -(2 * i / self.head_dim) for i in range(self.head_dim // 2)]
        return tuple(plain if local else _scaled(plain, self.rope_scaling))

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical name -> expected shape of every tensor this network reads."""
        shapes: dict[str, tuple[int, ...]] = {
            "embed.weight": (self.vocab_size, self.hidden),
            "final_norm.weight": (self.hidden,),
        }
        if not self.tie_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, self.hidden)
        for n in range(self.layers):
            shapes |= {f"layers.{n}.{name}": shape for name, shape in self._layer_shapes().items()}
        return shapes

    def _layer_shapes(self) -> dict[str, tuple[int, ...]]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        linear = {
            "attn.q": (q, self.hidden, self.qkv_bias),
            "attn.k": (kv, self.hidden, self.qkv_bias),
            "attn.v": (kv, self.hidden, self.qkv_bias),
            "attn.o": (self.hidden, q, self.o_bias),
            "ffn.gate": (self.ffn, self.hidden, self.mlp_bias),
            "ffn.up": (self.ffn, self.hidden, self.mlp_bias),
            "ffn.down": (self.hidden, self.ffn, self.mlp_bias),
        }
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (rows, columns, bias) in linear.items():
            shapes[f"{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{name}.bias"] = (rows,)
        norms = ["attn_norm", "ffn_norm"]
        norms += ["attn_post_norm", "ffn_post_norm"] if self.post_norms else []
        shapes |= {f"{name}.weight": (self.hidden,) for name in norms}
        if self.qk_norm:
            shapes |= {f"attn.{name}.weight": (self.head_dim,) for name in ("q_norm", "k_norm")}
        return shapes


def _scaled(plain: list[float], scaling: RopeScaling | None) -> list[float]:
    if scaling is None:
        return plain
    if isinstance(scaling, LinearRope):
        return [f / scaling.factor for f in plain]
    if isinstance(scaling, RopeDivisors):
        assert len(scaling.divisors) == len(plain), "one divisor per rotary frequency"
        return [f / d for f, d in zip(plain, scaling.divisors, strict=True)]
    return [_llama3(f, scaling) for f in plain]


def _llama3(frequency: float, scaling: Llama3Rope) -> float:
    wavelength = 2 * math.pi / frequency
    turns = scaling.original_context / wavelength  # full turns within the original context
    if turns < scaling.low_freq_factor:
        return frequency / scaling.factor
    if turns > scaling.high_freq_factor:
        return frequency
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency
