"""OpenVINO GenAI: continuous batching with prefix caching, driven step by step."""

from __future__ import annotations

import itertools
import time
from typing import Any


class Worker:
    def load(self, *, model: str, threads: int, context: int, step_tokens: int) -> dict[str, Any]:
        """`model`: an exported folder. The cache has room for eight short requests beside one of `context` tokens."""
        import openvino_genai as genai  # type: ignore[import-not-found]

        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1  # GB
        scheduler.enable_prefix_caching = True
        scheduler.max_num_batched_tokens = step_tokens
        scheduler.max_num_seqs = 8
        self._genai = genai
        self._pipe = genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )
        self._numbers = itertools.count()
        return {"version": genai.__version__}

    def generate(self, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[float]]]:
        import numpy as np
        import openvino as ov  # type: ignore[import-not-found]

        config = self._genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        begin = time.perf_counter()
        handles = [
            self._pipe.add_request(next(self._numbers), ov.Tensor(np.array([ids], np.int64)), config)
            for ids in prompts
        ]
        ids: list[list[int]] = [[] for _ in prompts]
        times: list[list[float]] = [[] for _ in prompts]
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
            now = time.perf_counter() - begin
            for row, handle in enumerate(handles):
                while handle.can_read():
                    for output in handle.read().values():
                        ids[row] += output.generated_ids
                        times[row] += [now] * len(output.generated_ids)
        return ids, times
