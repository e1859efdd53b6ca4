"""The other side of `serve`: `transformers` generating with the very weights that our engine loaded.

Built from our description and tensors (dequantised to float32), so that both sides compute the same function. Families
other than plain Llama are not built here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from belady.models.source import ModelSource

NAME = "transformers generate"

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
}
_TOP = {"embed": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"}


class BaselineError(RuntimeError):
    """No baseline for this model; the message says why."""


class Baseline:
    """A `transformers` model that says when each token came."""

    def __init__(self, source: ModelSource, threads: int) -> None:
        """Reads all tensors of an open source. Raises `BaselineError`."""
        try:
            import transformers
        except ImportError as error:
            raise BaselineError("transformers is not installed: pip install 'transformers>=5.0'") from error
        import torch

        transformers.logging.set_verbosity_error()
        torch.set_num_threads(threads)
        self._model = _build(source).eval()

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> tuple[list[list[int]], list[float]]:
        """Greedy ids of each of equally long prompts, and seconds from the call to each step's tokens."""
        import torch

        ids = torch.tensor([list(prompt) for prompt in prompts])
        begin = time.perf_counter()
        times: list[float] = []

        def note(input_ids: Any, scores: Any, **_: Any) -> Any:
            times.append(time.perf_counter() - begin)
            return torch.zeros(len(prompts), dtype=torch.bool)

        with torch.inference_mode():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                stopping_criteria=[note],
            )
        return out[:, ids.shape[1] :].tolist(), times


def _build(source: ModelSource) -> Any:
    import torch
    import transformers

    config = source.config
    if config.family != "llama" or config.rope_scaling is not None or config.qkv_bias or config.mlp_bias:
        raise BaselineError(f"the baseline is made for plain Llama models; {source.name} is {config.family}")
    shape = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.ffn,
        rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        max_position_embeddings=config.context_length,
        tie_word_embeddings=config.tie_embeddings,
    )
    shape.eos_token_id = None
    model = transformers.LlamaForCausalLM(shape)
    weights = {_name(name): torch.from_numpy(source.weights.get(name)) for name in source.weights.names()}
    left = model.load_state_dict(weights, strict=False)
    if left.unexpected_keys or set(left.missing_keys) - {"lm_head.weight"}:
        raise BaselineError(
            f"transformers names tensors otherwise: {left.missing_keys} {left.unexpected_keys}"
        )
    model.tie_weights()
    return model


def _name(canonical: str) -> str:
    stem, kind = canonical.rsplit(".", 1)
    if not stem.startswith("layers."):
        return f"{_TOP[stem]}.{kind}"
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{_LAYER[part]}.{kind}"
