"""llama.cpp through the low-level calls of llama-cpp-python: one context, batches of sequences, kept prefixes."""

from __future__ import annotations

import ctypes
import time
from typing import Any


class Worker:
    def load(self, *, model: str, threads: int, context: int) -> dict[str, Any]:
        """`model`: a GGUF file. One pool of cells for all sequences, so that a long one needs no eight times its room."""
        import llama_cpp as ll  # type: ignore[import-not-found]

        ll.llama_backend_init()
        self._quiet = ll.llama_log_callback(lambda level, text, user: None)
        ll.llama_log_set(self._quiet, ctypes.c_void_p(0))
        self._ll = ll
        self._model = ll.llama_model_load_from_file(model.encode(), ll.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"{model} can't be loaded")
        params = ll.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = 2048
        params.n_ubatch = 512
        params.n_seq_max = 8
        params.kv_unified = True
        params.n_threads = threads
        params.n_threads_batch = threads
        self._context = ll.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError("the context can't be made")
        self._memory = ll.llama_get_memory(self._context)
        self._vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self._model))
        self._batch = ll.llama_batch_init(2048, 0, 1)
        self._held: list[int] = []
        return {"version": ll.__version__}

    def generate(self, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[float]]]:
        begin = time.perf_counter()
        last = self._prefill(prompts)
        ids = [[token] for token in last]
        times = [[time.perf_counter() - begin] for _ in prompts]
        for step in range(tokens - 1):
            rows = [(ids[row][-1], len(prompt) + step, row, True) for row, prompt in enumerate(prompts)]
            self._decode(rows)
            now = time.perf_counter() - begin
            for row in range(len(prompts)):
                ids[row].append(self._best(row))
                times[row].append(now)
        self._held = [*prompts[0], *ids[0][:-1]] if len(prompts) == 1 else []
        return ids, times

    def _prefill(self, prompts: list[list[int]]) -> list[int]:
        """First token of each prompt. A single prompt keeps what it shares with the one before."""
        kept = 0
        if len(prompts) == 1:
            kept = shared(self._held, prompts[0][:-1])
        if not kept or not self._ll.llama_memory_seq_rm(self._memory, 0, kept, -1):
            self._ll.llama_memory_clear(self._memory, False)
            kept = 0
        rows = [
            (token, at, row, at == len(prompt) - 1)
            for row, prompt in enumerate(prompts)
            for at, token in enumerate(prompt)
            if at >= kept
        ]
        first: list[int] = [0] * len(prompts)
        for start in range(0, len(rows), 2048):
            chunk = rows[start : start + 2048]
            self._decode(chunk)
            for index, (_, _, row, wanted) in enumerate(chunk):
                if wanted:
                    first[row] = self._best(index)
        return first

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, at, row, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = at
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = row
            batch.logits[i] = wanted
        status = self._ll.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode says {status}")

    def _best(self, index: int) -> int:
        import numpy as np

        logits = self._ll.llama_get_logits_ith(self._context, index)
        return int(np.ctypeslib.as_array(logits, shape=(self._vocab,)).argmax())


def shared(a: list[int], b: list[int]) -> int:
    """Length of the common prefix."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
