"""From a device and a model to the seconds of a step: the roofline, with sliding-window layers where there are any.

time = max(arithmetic / reached rate, bytes / reached bandwidth) + overheads. `overlap` blends max (1) and sum (0).
Several devices per replica share work, memory and bandwidth ideally: communication between them costs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from belady.core.cost import Roofline, StepBatch, StepCost
from belady.sim.hardware import Hardware
from belady.sim.model import DTYPE_BYTES, Model
from belady.sim.ranges import Blend, Seconds, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConfig:
    """How much of the peaks a step reaches, and fixed times in seconds. The shares are the usual round figures, not a
    calibration."""

    compute_share: Share = 0.5
    bandwidth_share: Share = 0.8
    step_overhead: Seconds = 0.0
    row_overhead: Seconds = 0.0
    overlap: Blend = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTerm:
    """Attention of the layers of one sliding-window group."""

    window: int
    flops_per_pair: float
    kv_bytes_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoofline:
    """`base` holds weights and full-attention layers, `windows` the others.

    Decode rows read min(their context, window) tokens each; only their total context is known, so the sum is taken
    as min(total, rows x window): exact when all rows lie on one side of the window, else too high.
    """

    base: Roofline
    windows: tuple[WindowTerm, ...] = field(default=())

    def seconds(self, batch: StepBatch) -> float:
        """Predicted seconds of one iteration."""
        base = self.base
        tokens, pairs, read = batch.decodes, float(batch.decode_context), float(batch.decode_context)
        for chunk, done in batch.prefill:
            tokens += chunk
            pairs += chunk * (done + (chunk + 1) / 2)
            read += done + chunk
        flops = base.flops_per_token * tokens + base.attention_flops_per_pair * pairs
        moved = base.weight_bytes + base.kv_bytes_per_token * read
        for term in self.windows:
            seen = float(min(batch.decode_context, batch.decodes * term.window))
            held = seen
            for chunk, done in batch.prefill:
                seen += _window_pairs(chunk, done, term.window)
                held += min(done + chunk, term.window + chunk)
            flops += term.flops_per_pair * seen
            moved += term.kv_bytes_per_token * held
        compute, memory = flops / base.flops, moved / base.bandwidth
        longer, shorter = (compute, memory) if compute > memory else (memory, compute)
        rows = batch.decodes + len(batch.prefill)
        return longer + (1.0 - base.overlap) * shorter + base.step_overhead + base.row_overhead * rows

    def decode_run(self, decodes: int, context: int, iterations: int) -> list[float]:
        """Durations of successive decode iterations (see `StepCost.decode_run`).

        Where the whole run is bound by one resource, times grow linearly, which is what makes long jumps cheap.
        """
        last = context + (iterations - 1) * decodes
        if self.windows or iterations < 3:
            return [self.seconds(StepBatch(decodes, context + i * decodes)) for i in range(iterations)]
        base = self.base
        fixed = base.step_overhead + base.row_overhead * decodes
        compute, compute_slope = self._compute(decodes, context), self._compute(0, decodes)
        memory, memory_slope = self._memory(context), base.kv_bytes_per_token * decodes / base.bandwidth
        ahead = compute > memory
        if ahead != (self._compute(decodes, last) > self._memory(last)):
            return [self.seconds(StepBatch(decodes, context + i * decodes)) for i in range(iterations)]
        hidden = 1.0 - base.overlap
        if ahead:
            start, slope = compute + hidden * memory + fixed, compute_slope + hidden * memory_slope
        else:
            start, slope = memory + hidden * compute + fixed, memory_slope + hidden * compute_slope
        return [start + i * slope for i in range(iterations)]

    def _compute(self, tokens: int, pairs: int) -> float:
        base = self.base
        return (base.flops_per_token * tokens + base.attention_flops_per_pair * pairs) / base.flops

    def _memory(self, read: int) -> float:
        return (self.base.weight_bytes + self.base.kv_bytes_per_token * read) / self.base.bandwidth


def _window_pairs(chunk: int, done: int, window: int) -> float:
    """(query, key) pairs of `chunk` new tokens behind `done`, each seeing itself and at most `window` tokens in all."""
    growing = min(chunk, max(0, window - done))
    return growing * (done + (growing + 1) / 2) + (chunk - growing) * window


def roofline(
    device: Hardware, model: Model, config: CostConfig, *, dtype: str = "bfloat16", count: int = 1
) -> StepCost:
    """The cost of a step of `model` on `count` devices working as one. Raises `CatalogError` for a rate not given."""
    full = model.groups[0]
    base = Roofline(
        flops=device.rate(dtype) * config.compute_share * count,
        bandwidth=device.bandwidth * config.bandwidth_share * count,
        weight_bytes=model.active_parameters * DTYPE_BYTES[dtype],
        flops_per_token=2.0 * model.active_parameters,
        attention_flops_per_pair=model.attention_flops_per_pair(full),
        kv_bytes_per_token=model.kv_bytes_per_token(full, dtype),
        step_overhead=config.step_overhead,
        row_overhead=config.row_overhead,
        overlap=config.overlap,
    )
    windows = tuple(
        WindowTerm(
            window=group.window,
            flops_per_pair=model.attention_flops_per_pair(group),
            kv_bytes_per_token=model.kv_bytes_per_token(group, dtype),
        )
        for group in model.groups
        if group.window is not None
    )
    return GroupRoofline(base=base, windows=windows)
