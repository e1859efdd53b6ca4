"""Tiny random checkpoints of every family, as Hugging Face folders and as GGUF files of the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, CONTEXT = 32, 3, 4, 2, 8, 64, 40, 128
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 1,
    "bos_token_id": 0,
}
TOKENS = [*(chr(ord("a") + n) for n in range(26)), *(chr(ord("A") + n) for n in range(13)), "xy"]


def write_tokenizer(folder: Path) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({t: n for n, t in enumerate(TOKENS)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))


def gguf_writer(path: Path, family: str, extra: dict[str, Any]) -> gguf.GGUFWriter:
    """A writer that has the common metadata and a tokenizer, and no tensors yet."""
    writer = gguf.GGUFWriter(path, family)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["x y"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for key, value in extra.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    return writer


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_tensor(name: str, values: np.ndarray, family: str) -> tuple[str, np.ndarray]:
    """Name and content that llama.cpp's converter gives a Hugging Face tensor."""
    top = {
        "model.embed_tokens.weight": "token_embd",
        "model.norm.weight": "output_norm",
        "lm_head.weight": "output",
    }
    if family == "gemma3" and name.endswith("norm.weight"):
        values = values + 1
    if name in top:
        return f"{top[name]}.weight", values
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    if part == "post_attention_layernorm":
        return f"blk.{layer}.{'post_attention_norm' if family == 'gemma3' else 'ffn_norm'}.{kind}", values
    if family == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = values.shape[0] // HEAD_DIM
        halves = values.reshape(heads, 2, HEAD_DIM // 2, *values.shape[1:])
        values = halves.swapaxes(1, 2).reshape(values.shape)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}", np.ascontiguousarray(values)
