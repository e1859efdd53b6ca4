"""Tiny random checkpoints with a byte-level tokenizer, and short ways to run an engine on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers

from belady.core.client import Delta, Generate, Sampling
from belady.engine.engine import Engine
from belady.engine.sizes import EngineConfig
from belady.models.source import ModelSource, open_model
from belady.text.pieces import byte_of_char

CONTEXT = 256
BOS, EOS, VOCAB = 256, 257, 262
"""Ids 0 to 255 are bytes; 258 and 259 are words of two bytes; the last two rows have no token."""


def write_checkpoint(folder: Path, family: str) -> None:
    """A random checkpoint: `llama`, or `gemma3` with a sliding-window group."""
    import torch
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "eos_token_id": EOS,
        "bos_token_id": BOS,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(5)
    model: Any
    if family == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    else:
        extra = {"sliding_window": 24, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8}
        model = transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(**sizes | extra | {"tie_word_embeddings": True})
        )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 3)
    model.save_pretrained(folder)
    vocab = dict(byte_of_char()) | {"ab": 258, "cd": 259}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("a", "b"), ("c", "d")]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))


@dataclass(frozen=True)
class Answer:
    """One choice, gathered."""

    text: str
    ids: tuple[int, ...]
    last: Delta
    deltas: tuple[Delta, ...]


def gather(deltas: Sequence[Delta], index: int = 0) -> Answer:
    mine = [d for d in deltas if d.index == index]
    assert mine[-1].finish_reason is not None and all(d.finish_reason is None for d in mine[:-1])
    ids = tuple(i for d in mine for i in d.token_ids)
    return Answer("".join(d.text for d in mine), ids, mine[-1], tuple(mine))


async def generate(engine: Engine, prompt: Sequence[int], n: int = 1, **fields: Any) -> list[Answer]:
    """All choices of one request; greedy unless told otherwise."""
    own = {k: fields.pop(k) for k in ("priority", "salt", "program") if k in fields}
    sampling = Sampling(**{"max_tokens": 24, "temperature": 0.0, "ignore_eos": True} | fields)
    request = Generate(request_id="r", prompt_ids=prompt, sampling=sampling, n=n, **own)
    deltas = [d async for d in engine.generate(request)]
    return [gather(deltas, i) for i in range(n)]


async def one(engine: Engine, prompt: Sequence[int], **fields: Any) -> Answer:
    return (await generate(engine, prompt, **fields))[0]


SMALL = EngineConfig(cache_bytes=4 << 20, threads=1)


def open_engine(folder: Path, **changes: Any) -> Engine:
    source: ModelSource
    with open_model(folder) as source:
        return Engine.load(source, replace(SMALL, **changes))


async def close(engine: Engine) -> None:
    """Close, and check that nothing leaked."""
    await engine.close()
    engine.check_integrity()
    stats = engine.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    # A page that two runs share is named by both, so the pages in use may be fewer than those named.
    assert engine.used_pages[0] * engine.model.page_size <= stats.cached_tokens


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)
