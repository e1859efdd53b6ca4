"""vLLM on the CPU, in this process, driven step by step, with prefix caching."""

from __future__ import annotations

import itertools
import time
from typing import Any


class Worker:
    def load(self, *, model: str, threads: int, context: int, dtype: str, eager: bool) -> dict[str, Any]:
        """`threads` is taken from the environment, where vLLM reads it."""
        import vllm  # type: ignore[import-not-found]

        self._vllm = vllm
        self._engine = vllm.LLM(
            model=model,
            dtype=dtype,
            enforce_eager=eager,
            max_model_len=context,
            max_num_seqs=8,
            enable_prefix_caching=True,
        ).llm_engine
        self._numbers = itertools.count()
        return {"version": vllm.__version__}

    def generate(self, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[float]]]:
        sampling = self._vllm.SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        ids: list[list[int]] = [[] for _ in prompts]
        times: list[list[float]] = [[] for _ in prompts]
        rows: dict[str, int] = {}
        begin = time.perf_counter()
        for row, prompt in enumerate(prompts):
            number = str(next(self._numbers))
            rows[number] = row
            self._engine.add_request(number, {"prompt_token_ids": prompt}, sampling)
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter() - begin
            for output in outputs:
                row = rows[output.request_id]
                new = list(output.outputs[0].token_ids)[len(ids[row]) :]
                ids[row] += new
                times[row] += [now] * len(new)
        return ids, times
