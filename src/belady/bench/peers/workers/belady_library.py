"""Our engine, in process, through the interface that the HTTP server uses."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any


class Worker:
    def load(self, *, model: str, threads: int, context: int, **settings: Any) -> dict[str, Any]:
        """`model`: whatever `belady serve` takes. `settings`: further fields of the engine's configuration."""
        import belady
        from belady.engine.engine import Engine
        from belady.engine.sizes import EngineConfig
        from belady.models.source import open_model

        config = EngineConfig(threads=threads, max_context=context, **settings)
        with open_model(model) as source:
            self._engine = Engine.load(source, config)
        self._runner = asyncio.Runner()
        self._numbers = itertools.count()
        return {"version": belady.__version__, **describe(self._engine)}

    def generate(self, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[float]]]:
        answers = self._runner.run(self._all(prompts, tokens))
        return [ids for ids, _ in answers], [times for _, times in answers]

    async def _all(self, prompts: list[list[int]], tokens: int) -> list[tuple[list[int], list[float]]]:
        begin = time.perf_counter()
        return list(await asyncio.gather(*(self._one(prompt, tokens, begin) for prompt in prompts)))

    async def _one(self, prompt: list[int], tokens: int, begin: float) -> tuple[list[int], list[float]]:
        from belady.core.client import Generate, Sampling

        sampling = Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        request = Generate(request_id=f"bench-{next(self._numbers)}", prompt_ids=prompt, sampling=sampling)
        ids: list[int] = []
        times: list[float] = []
        async for delta in self._engine.generate(request):
            ids.extend(delta.token_ids)
            times += [time.perf_counter() - begin] * len(delta.token_ids)
            if delta.finish_reason in ("error", "abort"):
                raise RuntimeError(f"{delta.finish_reason}: {delta.detail}")
        return ids, times


def describe(engine: Any) -> dict[str, Any]:
    """Bits per weight and the backend, where the engine says them; the reference computes with 32 bits."""
    backend = getattr(engine, "backend", None)
    return {
        "bits": float(getattr(backend, "weight_bits", 32.0)),
        "backend": getattr(backend, "name", "torch"),
    }
