"""GGUF metadata -> `ModelConfig`. Knows that format's keys and what its converters leave out, not tensor data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from belady.models.config import (
    FAMILIES,
    Family,
    LayerType,
    LinearRope,
    ModelConfig,
    RopeDivisors,
    RopeScaling,
)
from belady.models.errors import ModelLoadError
from belady.models.weights.base import MAX_LAYERS, Fields, WeightSource

# Chat models whose metadata names only one of their stop tokens are common; these texts mark a turn's or a
# document's end wherever they are control tokens.
_END_TEXTS = frozenset(
    (
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "<eos>",
        "</s>",
    )
)
_CONTROL = 3
_GEMMA3_PATTERN = 6
_GEMMA3_LOCAL_THETA = 10_000.0
_GEMMA3_27B_LAYERS = 62


def parse_gguf_config(source: WeightSource) -> ModelConfig:
    """Normalise the metadata of an open GGUF file.

    Raises ModelLoadError for an architecture or setting that no network here computes.
    """
    family = _family(source)
    fields = Fields(source.path, source.metadata, f"{family}.")
    names = set(source.names())
    common = _common(source, fields, family, names)
    extra = _gemma3(fields, common) if family == "gemma3" else {"layer_types": ("full",) * common["layers"]}
    return ModelConfig(**common, **extra, rope_scaling=_scaling(source, fields, common, names))


def _family(source: WeightSource) -> Family:
    architecture = source.metadata.get("general.architecture")
    for family in FAMILIES:
        if family == architecture:
            return family
    raise ModelLoadError(
        source.path,
        f"architecture {architecture!r} is not supported",
        f"Supported GGUF architectures: {', '.join(FAMILIES)}",
    )


def _common(source: WeightSource, fields: Fields, family: Family, names: set[str]) -> dict[str, Any]:
    if fields.raw("expert_count"):
        raise fields.unsupported(
            "expert_count", "says that this is a mixture of experts, which is not supported"
        )
    heads = fields.size("attention.head_count")
    hidden = fields.size("embedding_length")
    head_dim = fields.size("attention.key_length", max(1, hidden // heads))
    kv_heads = fields.size("attention.head_count_kv", heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if fields.size(key, head_dim) != head_dim:
            raise fields.unsupported(key, f"differs from the head size {head_dim}, which is not supported")
    if head_dim % 2 or heads % kv_heads:
        raise fields.fail(
            "attention.head_count", f"({heads} heads, {kv_heads} kv heads, size {head_dim}) is uneven"
        )
    if "token_embd.weight" not in names:
        raise ModelLoadError(source.path, "tensor `token_embd.weight` is missing", "Get the file again")
    general = Fields(source.path, source.metadata, "tokenizer.ggml.")
    return {
        "family": family,
        "vocab_size": source.shape("token_embd.weight")[0],
        "hidden": hidden,
        "layers": fields.size("block_count", most=MAX_LAYERS),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": fields.size("feed_forward_length"),
        "norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", 1_000_000.0 if family == "gemma3" else 10_000.0),
        "context_length": fields.size("context_length"),
        "tie_embeddings": "output.weight" not in names,
        "qkv_bias": "blk.0.attn_q.bias" in names,
        "o_bias": "blk.0.attn_output.bias" in names,
        "mlp_bias": "blk.0.ffn_down.bias" in names,
        "qk_norm": family in ("qwen3", "gemma3"),
        "eos_ids": _stop_ids(general, source.metadata),
        "bos_id": next(iter(general.ids("bos_token_id")), None),
    }


def _stop_ids(fields: Fields, metadata: Mapping[str, Any]) -> tuple[int, ...]:
    named = [i for key in ("eos_token_id", "eot_token_id", "eom_token_id") for i in fields.ids(key)]
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(types, list):
        pairs = enumerate(zip(tokens, types, strict=False))
        named += [i for i, (text, kind) in pairs if kind == _CONTROL and text in _END_TEXTS]
    return tuple(dict.fromkeys(named))


def _scaling(
    source: WeightSource, fields: Fields, common: Mapping[str, Any], names: set[str]
) -> RopeScaling | None:
    if "rope_freqs.weight" in names:
        divisors = source.get("rope_freqs.weight")
        if divisors.shape != (common["head_dim"] // 2,) or not bool(np.all(divisors > 0)):
            raise ModelLoadError(
                source.path, "tensor `rope_freqs.weight` does not fit the head size", "Get the file again"
            )
        return RopeDivisors(divisors=tuple(float(d) for d in divisors))
    kind = fields.raw("rope.scaling.type")
    old = fields.optional_number("rope.scale_linear")
    if kind in (None, "none") and old is None:
        return None
    if kind in (None, "none", "linear"):
        factor = fields.number("rope.scaling.factor", old)
        return None if factor == 1.0 else LinearRope(factor=factor)
    raise fields.unsupported(
        "rope.scaling.type", f"is {kind!r}; supported: none, linear, and Llama 3 frequencies"
    )


def _gemma3(fields: Fields, common: Mapping[str, Any]) -> dict[str, Any]:
    layers, head_dim = common["layers"], common["head_dim"]
    # The converter stores no attention scale; only the 27B model departs from the head size.
    scalar = common["hidden"] / common["heads"] if layers == _GEMMA3_27B_LAYERS else head_dim
    types = _gemma3_layer_types(fields, layers)
    return {
        "layer_types": types,
        "sliding_window": fields.size("attention.sliding_window") if "window" in types else None,
        "rope_local_theta": fields.number("rope.freq_base_swa", _GEMMA3_LOCAL_THETA),
        "post_norms": True,
        "activation": "gelu_tanh",
        "embedding_scale": common["hidden"] ** 0.5,
        "query_pre_attn_scalar": float(scalar),
        "final_logit_softcap": fields.optional_number("final_logit_softcapping"),
    }


def _gemma3_layer_types(fields: Fields, layers: int) -> tuple[LayerType, ...]:
    """A list says for each layer whether it slides; a number, or nothing, gives the period of full layers."""
    raw = fields.raw("attention.sliding_window_pattern")
    if isinstance(raw, list):
        if len(raw) != layers or not all(isinstance(item, bool) for item in raw):
            raise fields.fail("attention.sliding_window_pattern", f"is not a list of {layers} booleans")
        return tuple("window" if slides else "full" for slides in raw)
    period = fields.size("attention.sliding_window_pattern", _GEMMA3_PATTERN)
    return tuple("full" if (n + 1) % period == 0 else "window" for n in range(layers))
