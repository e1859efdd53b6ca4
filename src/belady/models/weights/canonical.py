"""One name and one meaning per tensor, whatever the file calls it and however its converter rearranged it.

Files disagree in two ways beyond names: GGUF's `llama` converter interleaves the halves of each head's query
and key rows for its rotary kernel, and Gemma checkpoints in Hugging Face format store norm weights minus one.
Both are undone here, so that networks know neither. The names are listed in `belady.models.config`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from belady.models.config import Family, ModelConfig
from belady.models.errors import ModelLoadError
from belady.models.weights.base import FloatArray, WeightSource

Transform = Callable[[FloatArray], FloatArray]

_HF_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")
_HF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "attn_post_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
    "ffn_post_norm": "post_feedforward_layernorm",
}
_GGUF_LAYER = {
    "attn_norm": "attn_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "attn_post_norm": "post_attention_norm",
    "ffn_norm": "ffn_norm",
    "ffn.gate": "ffn_gate",
    "ffn.up": "ffn_up",
    "ffn.down": "ffn_down",
    "ffn_post_norm": "post_ffw_norm",
}
_GGUF_TOP = {"embed": "token_embd", "final_norm": "output_norm", "lm_head": "output"}


@dataclass(frozen=True, slots=True)
class _Rule:
    raw: str
    transform: Transform | None


class CanonicalWeights:
    """The tensors that one network reads, under canonical names. Owns the source that it was given."""

    def __init__(
        self, source: WeightSource, config: ModelConfig, *, is_gguf: bool, readable: tuple[str, ...]
    ) -> None:
        """Check that every tensor is there, has its shape, and is stored in one of the `readable` ways.

        Raises ModelLoadError naming the first that is not; reads no tensor data.
        """
        self._source = source
        self._shapes = config.tensor_shapes()
        present = set(source.names())
        prefix = "" if is_gguf else _hf_prefix(present)
        self._rules: dict[str, _Rule] = {}
        for name in self._shapes:
            raw = _gguf_name(name) if is_gguf else _hf_name(name, config.family, prefix)
            transform = _gguf_transform(name, config) if is_gguf else _hf_transform(name, config)
            self._rules[name] = _Rule(raw, transform)
        self._check(present, readable)

    def _check(self, present: set[str], readable: tuple[str, ...]) -> None:
        path = self._source.path
        for name, rule in self._rules.items():
            if rule.raw not in present:
                raise ModelLoadError(
                    path,
                    f"tensor `{rule.raw}` is missing",
                    "Get the model again: weights and config disagree",
                )
            shape, wanted = self._source.shape(rule.raw), self._shapes[name]
            if shape != wanted:
                raise ModelLoadError(
                    path,
                    f"tensor `{rule.raw}` has shape {list(shape)}, the config says {list(wanted)}",
                    "Get the model again: weights and config disagree",
                )
            stored = self._source.stored_type(rule.raw)
            if stored not in readable:
                raise ModelLoadError(
                    path,
                    f"tensor `{rule.raw}` is stored as {stored}, which is not supported",
                    f"Supported: {', '.join(readable)}. Take the model in one of these",
                )

    def names(self) -> list[str]:
        """Canonical names, embedding first, then by layer."""
        return list(self._rules)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a canonical tensor. KeyError if the network has none of that name."""
        return self._shapes[name]

    def stored_type(self, name: str) -> str:
        """How the file stores it (`Q4_1`, `BF16`)."""
        return self._source.stored_type(self._rules[name].raw)

    def get(self, name: str) -> FloatArray:
        """A fresh writable float32 array. KeyError if the network has none of that name."""
        rule = self._rules[name]
        values = self._source.get(rule.raw)
        return values if rule.transform is None else rule.transform(values)

    def close(self) -> None:
        """Close the source. Idempotent; arrays handed out stay valid."""
        self._source.close()


def _hf_prefix(present: set[str]) -> str:
    """Text models sit at different depths in text-only, multimodal and headless checkpoints."""
    return next((p for p in _HF_PREFIXES if f"{p}embed_tokens.weight" in present), _HF_PREFIXES[0])


def has_lm_head(names: list[str]) -> bool:
    """Whether a Hugging Face checkpoint carries an output projection of its own."""
    return _hf_head(set(names)) is not None


def _hf_head(present: set[str]) -> str | None:
    return next((n for n in ("lm_head.weight", "language_model.lm_head.weight") if n in present), None)


def _split(name: str) -> tuple[str | None, str, str]:
    """'layers.3.attn.q.weight' -> ('3', 'attn.q', 'weight'); 'embed.weight' -> (None, 'embed', 'weight')."""
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("layers."):
        return None, stem, kind
    _, layer, part = stem.split(".", 2)
    return layer, part, kind


def _hf_name(name: str, family: Family, prefix: str) -> str:
    layer, part, kind = _split(name)
    if layer is None:
        if part == "lm_head":
            return "language_model.lm_head.weight" if prefix == "language_model.model." else "lm_head.weight"
        return f"{prefix}{'embed_tokens' if part == 'embed' else 'norm'}.{kind}"
    # With post norms, what other families call post_attention_layernorm really stands after attention.
    inner = "pre_feedforward_layernorm" if part == "ffn_norm" and family == "gemma3" else _HF_LAYER[part]
    return f"{prefix}layers.{layer}.{inner}.{kind}"


def _gguf_name(name: str) -> str:
    layer, part, kind = _split(name)
    return f"{_GGUF_TOP[part]}.{kind}" if layer is None else f"blk.{layer}.{_GGUF_LAYER[part]}.{kind}"


def _hf_transform(name: str, config: ModelConfig) -> Transform | None:
    return _plus_one if config.family == "gemma3" and "norm" in name else None


def _plus_one(weight: FloatArray) -> FloatArray:
    return weight + np.float32(1)


def _gguf_transform(name: str, config: ModelConfig) -> Transform | None:
    if config.family != "llama" or _split(name)[1] not in ("attn.q", "attn.k"):
        return None
    return lambda weight: _rotate_half_rows(weight, config.head_dim)


def _rotate_half_rows(weight: FloatArray, head_dim: int) -> FloatArray:
    """Rows of each head from pair order (0, d/2, 1, d/2 + 1, ...) back to halves (0, 1, ..., d/2, ...)."""
    heads = weight.shape[0] // head_dim
    pairs = weight.reshape(heads, head_dim // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
