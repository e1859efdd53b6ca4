"""transformers: the model's own forward in a greedy loop, which costs less than `generate`; a single prompt reuses the cache
of the one before."""

from __future__ import annotations

import time
from typing import Any


class Worker:
    def load(self, *, model: str, threads: int, context: int, dtype: str) -> dict[str, Any]:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        torch.set_num_threads(threads)
        self._torch = torch
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=getattr(torch, dtype), local_files_only=True
        ).eval()
        self._held: list[int] = []
        self._cache: Any = None
        return {"version": transformers.__version__}

    def generate(self, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[float]]]:
        torch = self._torch
        begin = time.perf_counter()
        kept = self._keep(prompts)
        ids = torch.tensor([prompt[kept:] for prompt in prompts])
        out: list[list[int]] = [[] for _ in prompts]
        times: list[float] = []
        with torch.inference_mode():
            for _ in range(tokens):
                step = self._model(ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
                self._cache = step.past_key_values
                ids = step.logits[:, -1].argmax(-1, keepdim=True)
                for row, token in enumerate(ids.flatten().tolist()):
                    out[row].append(token)
                times.append(time.perf_counter() - begin)
        self._held = [*prompts[0], *out[0][:-1]] if len(prompts) == 1 else []
        return out, [times] * len(prompts)

    def _keep(self, prompts: list[list[int]]) -> int:
        """Cut the cache to what a single prompt shares with what it holds; else drop it."""
        kept = 0
        if len(prompts) == 1 and self._held:
            for held, wanted in zip(self._held, prompts[0][:-1], strict=False):
                if held != wanted:
                    break
                kept += 1
        if kept:
            try:
                self._cache.crop(kept)
                return kept
            except (ValueError, NotImplementedError, RuntimeError):
                pass  # a sliding window has dropped what would be needed
        self._cache = None
        return 0
