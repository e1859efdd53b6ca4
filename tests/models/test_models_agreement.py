"""Every family computes the logits that transformers computes: random checkpoints, and the default model's text."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import CONTEXT, SIZES, VOCAB, write_tokenizer
from paged_rows import PagedRows

from belady.kernels.torch_backend import TorchBackend
from belady.models.fetch import default_model_path
from belady.models.registry import build_program
from belady.models.source import open_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOLERANCE = {"atol": 2e-4, "rtol": 2e-4}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 7,
    "query_pre_attn_scalar": 24,
    "tie_word_embeddings": True,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama-linear-rope": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
    ),
    "llama-one-kv-head": ("Llama", {"num_key_value_heads": 1}),
    "llama-all-kv-heads": ("Llama", {"num_key_value_heads": 4}),
    "qwen2": ("Qwen2", {}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-sliding": ("Qwen2", SLIDING),
    "qwen3": ("Qwen3", {}),
    "qwen3-tied": ("Qwen3", {"tie_word_embeddings": True}),
    "gemma3": ("Gemma3", GEMMA),
    "gemma3-untied": ("Gemma3", GEMMA | {"tie_word_embeddings": False}),
    "gemma3-capped": ("Gemma3", GEMMA | {"final_logit_softcapping": 3.0}),
}


@pytest.fixture(scope="module", params=sorted(CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random model in transformers, and the same files opened here."""
    family, options = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    config = getattr(transformers, f"{family}{'Text' if family == 'Gemma3' else ''}Config")
    sizes = SIZES | {"tie_word_embeddings": False, "attn_implementation": "eager"} | options
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 4)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    with open_model(folder) as source:
        yield model, TorchBackend(build_program(source.config), source.weights)


def _prompt(length: int = 40, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, length)]


def _theirs(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].numpy()
    assert np.isfinite(logits).all() and logits.std() > 0.1, "a reference that says something"
    return logits


def test_one_shot_logits(pair: Any) -> None:
    model, backend = pair
    ours = PagedRows(backend, page_size=16).run([("a", _prompt())])
    np.testing.assert_allclose(ours, _theirs(model, _prompt()), **TOLERANCE)


@pytest.mark.parametrize("page_size", [1, 16])
def test_chunked_prefill_then_decode_logits(pair: Any, page_size: int) -> None:
    """Two sequences side by side, prefilled in uneven chunks, then decoded token by token."""
    model, backend = pair
    rows = PagedRows(backend, page_size)
    prompts = {"a": _prompt(seed=1), "b": _prompt(seed=2)}
    ours: dict[str, list[np.ndarray]] = {"a": [], "b": []}
    for begin, end in pairwise([0, 3, 4, 21, *range(30, 41)]):
        logits = rows.run([(name, tokens[begin:end]) for name, tokens in prompts.items()])
        for name, part in zip(ours, np.split(logits, 2), strict=True):
            ours[name].append(part)
            rows.leave_windows(name)
    for name, tokens in prompts.items():
        np.testing.assert_allclose(np.concatenate(ours[name]), _theirs(model, tokens), **TOLERANCE)


def test_positions_near_the_end_of_the_context(pair: Any) -> None:
    """Rotations stay exact far from the start."""
    model, backend = pair
    tokens = _prompt(CONTEXT)
    ours = PagedRows(backend, page_size=16).run([("a", tokens)], sample="last")
    np.testing.assert_allclose(ours[0], _theirs(model, tokens)[-1], **TOLERANCE)


@pytest.mark.model
def test_default_model_writes_what_transformers_writes() -> None:
    """Greedy text of the default model, against the same file dequantised by transformers."""
    path = default_model_path()
    if path is None:
        pytest.skip("the default model is not in the cache: run `belady fetch`")
    with open_model() as source:
        backend = TorchBackend(build_program(source.config), source.weights)
    model = _dequantised(path)
    for text in ("The capital of France is", "def fibonacci(n):\n"):
        prompt = source.tokenizer.encode(text)
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0].tolist()
        ours = _greedy(backend, prompt, len(theirs) - len(prompt))
        assert len(ours) >= 16 and ours == theirs[len(prompt) :], source.tokenizer.decode(ours)


def _greedy(backend: TorchBackend, prompt: list[int], count: int) -> list[int]:
    rows = PagedRows(backend, page_size=16)
    step, written = prompt, []
    for _ in range(count):
        step = [int(rows.run([("a", step)], sample="last")[0].argmax())]
        written += step
    return written


def _dequantised(path: Path) -> Any:
    """A GGUF file as transformers reads it, in float32. (`from_pretrained` would need accelerate for this.)"""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, "only the tied head has no tensor of its own"
    model.tie_weights()
    return model.eval()
