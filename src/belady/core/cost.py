"""How long a step takes: the protocol and its pure arithmetic. Fitting and hardware tables live in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class OutOfRangeError(ValueError):
    """The batch lies outside what the cost model was made for; the message names the quantity and the range."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Shape of one iteration.

    `prefill` holds (chunk, done_before) in tokens per prefill row; `decodes` rows read `decode_context` tokens in all.
    """

    decodes: int
    decode_context: int
    prefill: Sequence[tuple[int, int]] = ()


class StepCost(Protocol):
    """Predicts the seconds of one iteration. Pure; raises `OutOfRangeError`, never extrapolates silently."""

    def seconds(self, batch: StepBatch) -> float: ...

    def decode_run(self, decodes: int, context: int, iterations: int) -> Sequence[float]:
        """Durations of `iterations` successive decode-only iterations whose total context grows by `decodes` each."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """time = max(flops / rate, bytes / bandwidth) blended by `overlap`, plus fixed overheads.

    `overlap` is 1 for max (perfect overlap), 0 for the sum. All rates are effective ones (after utilisation).
    """

    flops: float
    """FLOP/s."""
    bandwidth: float
    """Bytes/s of device memory."""
    weight_bytes: float
    """Bytes of weights read once per iteration."""
    flops_per_token: float
    """2 x parameters that a token passes through."""
    attention_flops_per_pair: float
    """FLOP per (query, key) pair over all layers: 4 x layers x heads x head_dim."""
    kv_bytes_per_token: float
    step_overhead: float = 0.0
    row_overhead: float = 0.0
    overlap: float = 1.0

    def seconds(self, batch: StepBatch) -> float:
        """Predicted seconds of one iteration."""
        tokens = batch.decodes
        pairs = float(batch.decode_context)
        read = float(batch.decode_context)
        for chunk, done in batch.prefill:
            tokens += chunk
            pairs += chunk * (done + (chunk + 1) / 2)
            read += done + chunk
        return self._time(tokens, pairs, read, batch.decodes + len(batch.prefill))

    def decode_run(self, decodes: int, context: int, iterations: int) -> list[float]:
        """Durations of successive decode iterations (see `StepCost.decode_run`)."""
        time = self._time
        return [
            time(decodes, float(ctx), float(ctx), decodes)
            for ctx in range(context, context + iterations * decodes, decodes or 1)
        ]

    def _time(self, tokens: int, pairs: float, read: float, rows: int) -> float:
        compute = (self.flops_per_token * tokens + self.attention_flops_per_pair * pairs) / self.flops
        memory = (self.weight_bytes + self.kv_bytes_per_token * read) / self.bandwidth
        longer, shorter = (compute, memory) if compute > memory else (memory, compute)
        return longer + (1.0 - self.overlap) * shorter + self.step_overhead + self.row_overhead * rows
