"""Hugging Face `config.json` -> `ModelConfig`. Knows that format's fields and defaults, not its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belady.models.config import (
    Activation,
    Family,
    LayerType,
    LinearRope,
    Llama3Rope,
    ModelConfig,
    RopeScaling,
)
from belady.models.errors import ModelLoadError
from belady.models.weights.base import MAX_LAYERS, Fields

MODEL_TYPES: dict[str, Family] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
    "gemma3": "gemma3",
}

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_LAYER_TYPES: dict[str, LayerType] = {"full_attention": "full", "sliding_attention": "window"}
# Published Gemma 3 configs leave out whatever equals these.
_GEMMA3_DEFAULTS = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 256,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "tie_word_embeddings": True,
}


def parse_hf_config(
    path: Path, raw: Mapping[str, Any], generation: Mapping[str, Any], *, has_lm_head: bool
) -> ModelConfig:
    """Normalise a parsed config.json and generation_config.json (`{}` when the folder has none).

    `path` serves messages; `has_lm_head` says whether the weights carry an output projection. Raises
    ModelLoadError for an architecture, quantisation or setting that no network here computes.
    """
    family = _family(path, raw)
    _refuse_quantised(path, raw)
    values: dict[str, Any] = dict(raw)
    if family == "gemma3":
        inner = raw.get("text_config")
        values = _GEMMA3_DEFAULTS | (dict(inner) if isinstance(inner, Mapping) else values)
        # Sampling ids lie outside the text part in multimodal configs.
        values |= {k: raw[k] for k in ("eos_token_id", "bos_token_id") if raw.get(k) is not None}
    fields = Fields(path, values)
    common = _common(fields, family, has_lm_head) | _rope(fields, family) | _ids(fields, generation)
    return ModelConfig(**common, **_FAMILY_PARTS[family](fields, common))


def _family(path: Path, raw: Mapping[str, Any]) -> Family:
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise ModelLoadError(
            path,
            f"architecture {model_type!r} is not supported",
            f"Supported model types: {', '.join(MODEL_TYPES)}",
        )
    return MODEL_TYPES[model_type]


def _refuse_quantised(path: Path, raw: Mapping[str, Any]) -> None:
    quantisation = raw.get("quantization_config")
    if quantisation:
        method = quantisation.get("quant_method") if isinstance(quantisation, Mapping) else quantisation
        raise ModelLoadError(
            path,
            f"the checkpoint is quantised with {method!r}, which is not supported",
            "Supported: float64, float32, float16 and bfloat16 safetensors. "
            "Take the unquantised checkpoint, or a GGUF file of the model",
        )


def _common(fields: Fields, family: Family, has_lm_head: bool) -> dict[str, Any]:
    heads = fields.size("num_attention_heads")
    hidden = fields.size("hidden_size")
    if fields.raw("head_dim") is None and family != "qwen3" and hidden % heads:
        raise fields.fail(
            "hidden_size", "is not a multiple of `num_attention_heads` and there is no `head_dim`"
        )
    head_dim = fields.size("head_dim", 128 if family == "qwen3" else max(1, hidden // heads))
    if head_dim % 2:
        raise fields.fail("head_dim", "is odd; rotary embeddings need pairs")
    key = "hidden_activation" if family == "gemma3" else "hidden_act"
    activation = fields.raw(key) or "silu"
    if activation not in _ACTIVATIONS:
        raise fields.unsupported(key, f"is {activation!r}; supported: {', '.join(_ACTIVATIONS)}")
    kv_heads = fields.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.fail("num_key_value_heads", "does not divide `num_attention_heads`")
    tied = fields.flag("tie_word_embeddings", False) or not has_lm_head
    return {
        "family": family,
        "vocab_size": fields.size("vocab_size"),
        "hidden": hidden,
        "layers": fields.size("num_hidden_layers", most=MAX_LAYERS),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": fields.size("intermediate_size"),
        "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "activation": _ACTIVATIONS[activation],
        "context_length": fields.size("max_position_embeddings"),
        "tie_embeddings": tied,
        "mlp_bias": family == "llama" and fields.flag("mlp_bias", False),
    }


def _ids(fields: Fields, generation: Mapping[str, Any]) -> dict[str, Any]:
    """Stop ids of both files (chat models often name the end of a turn in the second only) and the start id."""
    generating = Fields(fields.path, generation)
    ids = (*generating.ids("eos_token_id"), *fields.ids("eos_token_id"))
    bos = fields.ids("bos_token_id")
    return {"eos_ids": tuple(dict.fromkeys(ids)), "bos_id": bos[0] if bos else None}


def _rope(fields: Fields, family: Family) -> dict[str, Any]:
    """Rotary base and scaling, from the nested `rope_parameters` or from the older flat keys."""
    nested = fields.raw("rope_parameters")
    parameters = nested if isinstance(nested, Mapping) else {}
    if "full_attention" in parameters or "sliding_attention" in parameters:
        full = parameters.get("full_attention") or {}
        local = parameters.get("sliding_attention") or {}
        if not isinstance(full, Mapping) or not isinstance(local, Mapping):
            raise fields.fail("rope_parameters", "is not an object of objects")
    else:
        full, local = parameters, {}
    scaling = fields.raw("rope_scaling") if not parameters else full
    default = 1_000_000.0 if family == "gemma3" else 10_000.0
    inner = Fields(fields.path, full, "")
    theta = inner.number("rope_theta", fields.number("rope_theta", default))
    parts: dict[str, Any] = {"rope_theta": theta, "rope_scaling": _scaling(fields, scaling)}
    if family == "gemma3":
        flat = fields.number("rope_local_base_freq", 10_000.0)
        parts["rope_local_theta"] = Fields(fields.path, local, "").number("rope_theta", flat)
    return parts


def _scaling(fields: Fields, raw: Any) -> RopeScaling | None:
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise fields.fail("rope_scaling", "is not an object")
    kind = raw.get("rope_type", raw.get("type", "default"))
    inner = Fields(fields.path, raw)
    if inner.number("partial_rotary_factor", 1.0) != 1.0:
        raise fields.unsupported("partial_rotary_factor", "other than 1 is not supported")
    if kind == "default":
        return None
    if kind == "linear":
        return LinearRope(factor=inner.number("factor"))
    if kind != "llama3":
        raise fields.unsupported("rope_scaling", f"has type {kind!r}; supported: default, linear, llama3")
    scaling = Llama3Rope(
        factor=inner.number("factor"),
        low_freq_factor=inner.number("low_freq_factor"),
        high_freq_factor=inner.number("high_freq_factor"),
        original_context=inner.size("original_max_position_embeddings"),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise fields.fail("rope_scaling", "has a `high_freq_factor` that is not above its `low_freq_factor`")
    return scaling


def _layer_types(fields: Fields, layers: int, default: tuple[LayerType, ...]) -> tuple[LayerType, ...]:
    raw = fields.raw("layer_types")
    if raw is None:
        return default
    if not isinstance(raw, list) or len(raw) != layers or any(kind not in _LAYER_TYPES for kind in raw):
        raise fields.fail(
            "layer_types", f"is not a list of {layers} entries out of {', '.join(_LAYER_TYPES)}"
        )
    return tuple(_LAYER_TYPES[kind] for kind in raw)


def _llama(fields: Fields, common: Mapping[str, Any]) -> dict[str, Any]:
    bias = fields.flag("attention_bias", False)
    return {"layer_types": ("full",) * common["layers"], "qkv_bias": bias, "o_bias": bias}


def _qwen_windows(fields: Fields, common: Mapping[str, Any]) -> dict[str, Any]:
    layers = common["layers"]
    window = fields.optional_size("sliding_window") if fields.flag("use_sliding_window", False) else None
    first = layers
    if window is not None:
        first = fields.raw("max_window_layers") if fields.raw("max_window_layers") is not None else 28
        if type(first) is not int or first < 0:
            raise fields.fail("max_window_layers", "is not a number of layers")
    default: tuple[LayerType, ...] = tuple("full" if n < first else "window" for n in range(layers))
    types = _layer_types(fields, layers, default)
    if "window" in types and window is None:
        raise fields.fail("sliding_window", "is off but `layer_types` has sliding layers")
    return {"layer_types": types, "sliding_window": window if "window" in types else None}


def _qwen2(fields: Fields, common: Mapping[str, Any]) -> dict[str, Any]:
    return _qwen_windows(fields, common) | {"qkv_bias": True}


def _qwen3(fields: Fields, common: Mapping[str, Any]) -> dict[str, Any]:
    bias = fields.flag("attention_bias", False)
    return _qwen_windows(fields, common) | {"qk_norm": True, "qkv_bias": bias, "o_bias": bias}


def _gemma3(fields: Fields, common: Mapping[str, Any]) -> dict[str, Any]:
    if fields.flag("use_bidirectional_attention", False):
        raise fields.fail("use_bidirectional_attention", "is on: this is an embedding model, not a generator")
    layers = common["layers"]
    pattern = fields.size("sliding_window_pattern")
    default: tuple[LayerType, ...] = tuple(
        "full" if (n + 1) % pattern == 0 else "window" for n in range(layers)
    )
    bias = fields.flag("attention_bias", False)
    types = _layer_types(fields, layers, default)
    return {
        "layer_types": types,
        "sliding_window": fields.size("sliding_window") if "window" in types else None,
        "qkv_bias": bias,
        "o_bias": bias,
        "qk_norm": True,
        "post_norms": True,
        "embedding_scale": common["hidden"] ** 0.5,
        "query_pre_attn_scalar": fields.number("query_pre_attn_scalar"),
        "attn_logit_softcap": fields.optional_number("attn_logit_softcapping"),
        "final_logit_softcap": fields.optional_number("final_logit_softcapping"),
    }


_FAMILY_PARTS = {"llama": _llama, "qwen2": _qwen2, "qwen3": _qwen3, "gemma3": _gemma3}
