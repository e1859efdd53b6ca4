"""Executes a program with torch, op by op: the reference that other backends are measured against.

A program is lowered once, when the backend is made: weights are loaded, values get slots that are reused after their
last reader, and linear ops on the same input become one product. A step then runs down a list of closures. Knows
neither model families nor requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from belady.kernels import torch_cache
from belady.kernels.backend import TensorSource
from belady.kernels.batch import ForwardBatch
from belady.kernels.errors import DeviceError
from belady.kernels.program import (
    Add,
    Attention,
    Embed,
    Gated,
    Linear,
    Op,
    Program,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    SoftCap,
)
from belady.kernels.torch_attention import GroupStep

DType = Literal["float32", "bfloat16", "float16"]

_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class _Step:
    """Inputs of one forward pass on the device, and the values computed so far (by slot)."""

    def __init__(self, backend: TorchBackend, batch: ForwardBatch, pools: Sequence[torch_cache.Pool]) -> None:
        program, device = backend.program, backend.device
        self.values: list[torch.Tensor] = [torch.empty(0)] * backend.slots
        self.tokens = torch.from_numpy(batch.tokens.astype(np.int64)).to(device)
        self.sample_rows = torch.from_numpy(batch.sample_rows.astype(np.int64)).to(device)
        self.takes_all = np.array_equal(batch.sample_rows, np.arange(len(batch.tokens)))
        positions = torch.from_numpy(batch.positions.astype(np.float32)).to(device)
        self.rotations = [_rotation(positions, table, backend.dtype) for table in backend.frequencies]
        self.groups = [
            GroupStep(pool, group, index, batch)
            for index, (pool, group) in enumerate(zip(pools, program.groups, strict=True))
        ]


_Run = Callable[[_Step], None]


class TorchBackend:
    """A program with its weights and key-value cache in torch tensors. One thread at a time."""

    def __init__(
        self,
        program: Program,
        weights: TensorSource,
        dtype: DType = "float32",
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        """Load the weights and lower the program.

        `dtype` is that of weights, activations and cache; norms, rotations and softmax are float32 inside. `threads`
        sets torch's thread count for the whole process; None leaves it. Raises DeviceError.
        """
        self.program = program
        self.device = _device(device)
        self.dtype = _DTYPES[dtype]
        if threads is not None:
            torch.set_num_threads(threads)
        self.frequencies = [torch.tensor(t, dtype=torch.float32, device=self.device) for t in program.ropes]
        self._pools: list[torch_cache.Pool] = []
        schedule = _merge_siblings(program.ops)
        slot_of, self.slots = _assign_slots(schedule, program.output)
        self._output = slot_of[program.output]
        loaded = self._load(program, weights)
        self._runs = [_lower(ops, slot_of, loaded) for ops in schedule]

    def bytes_per_page(self, group: int, page_size: int) -> int:
        """Bytes of keys and values that one page holds, over all layers of the group."""
        return torch_cache.page_bytes(self.program.groups[group], page_size, self.dtype)

    def allocate(self, pages: Sequence[int], page_size: int) -> None:
        """Replace the pools: pages per layer group, `page_size` token slots each. Raises CacheMemoryError."""
        self._pools = []  # free the old ones first
        self._pools = torch_cache.allocate(self.program.groups, pages, page_size, self.dtype, self.device)

    def copy_pages(self, group: int, src: Sequence[int], dst: Sequence[int], slots: Sequence[int]) -> None:
        """One after the other, copy the first slots[i] slots of page src[i] to page dst[i], in every layer."""
        with torch.inference_mode():
            for one, other, count in zip(src, dst, slots, strict=True):
                self._pools[group].copy(one, other, count)

    def forward(self, batch: ForwardBatch) -> npt.NDArray[np.float32]:
        """Write the tokens' keys and values to their pages and return logits [R, vocab]."""
        assert len(self._pools) == len(self.program.groups) == len(batch.block_tables), "allocate comes first"
        with torch.inference_mode():
            step = _Step(self, batch, self._pools)
            for run in self._runs:
                run(step)
            logits: npt.NDArray[np.float32] = step.values[self._output].float().cpu().numpy()
        return logits

    def _load(self, program: Program, source: TensorSource) -> dict[str, torch.Tensor]:
        loaded = {}
        for weight in program.weights:
            array = source.get(weight.name)
            assert array.shape == weight.shape, f"{weight.name} has shape {array.shape}, not {weight.shape}"
            loaded[weight.name] = torch.from_numpy(array).to(self.device, self.dtype)
        return loaded


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        known = not reason.startswith("Expected one of")  # else torch lists all the devices that it ever had
        raise DeviceError(
            f"device {name!r} can't be used ({reason if known else 'there is no such device'}). "
            "Use 'cpu', or 'cuda' with a CUDA build of torch (engine.device)"
        ) from error
    return device


def _merge_siblings(ops: Sequence[Op]) -> list[tuple[Op, ...]]:
    """Ops in order, with consecutive linear ops on the same input put together: one product serves them all."""
    schedule: list[tuple[Op, ...]] = []
    for op in ops:
        before = schedule[-1][0] if schedule else None
        if isinstance(op, Linear) and isinstance(before, Linear) and before.x == op.x:
            schedule[-1] = (*schedule[-1], op)
        else:
            schedule.append((op,))
    return schedule


def _assign_slots(schedule: Sequence[tuple[Op, ...]], output: int) -> tuple[dict[int, int], int]:
    """Slot of every value, and how many there are. A slot is free again once its value was read for the last time."""
    last_read = {value: at for at, ops in enumerate(schedule) for op in ops for value in op.inputs}
    last_read[output] = len(schedule)
    slot_of: dict[int, int] = {}
    free: list[int] = []
    count = 0
    for at, ops in enumerate(schedule):
        # A step reads all its inputs before it defines anything, so it may overwrite those it reads last.
        free += [slot_of[v] for v in {v for op in ops for v in op.inputs} if last_read[v] == at]
        for op in ops:
            if not free:
                free.append(count)
                count += 1
            slot_of[op.out] = free.pop()
        free += [slot_of[op.out] for op in ops if op.out not in last_read]
    return slot_of, count


def _lower(ops: tuple[Op, ...], slot_of: dict[int, int], weights: dict[str, torch.Tensor]) -> _Run:
    """A closure that executes one entry of the schedule."""
    if len(ops) > 1:
        return _lower_siblings([op for op in ops if isinstance(op, Linear)], slot_of, weights)
    op = ops[0]
    compute = _compute(op, [slot_of[v] for v in op.inputs], weights)
    out = slot_of[op.out]

    def run(step: _Step) -> None:
        step.values[out] = compute(step)

    return run


def _lower_siblings(ops: Sequence[Linear], slot_of: dict[int, int], weights: dict[str, torch.Tensor]) -> _Run:
    x = slot_of[ops[0].x]
    outs = [slot_of[op.out] for op in ops]
    parts = [weights[op.weight] for op in ops]
    sizes = [len(part) for part in parts]
    weight = torch.cat(parts)
    bias = None
    if any(op.bias is not None for op in ops):
        bias = torch.cat(
            [
                part.new_zeros(len(part)) if op.bias is None else weights[op.bias]
                for op, part in zip(ops, parts, strict=True)
            ]
        )

    def run(step: _Step) -> None:
        values = step.values
        for out, part in zip(outs, functional.linear(values[x], weight, bias).split(sizes, -1), strict=True):
            values[out] = part

    return run


def _compute(op: Op, slots: list[int], weights: dict[str, torch.Tensor]) -> Callable[[_Step], torch.Tensor]:
    """The value of `op` as a function of a step, its inputs being in `slots`."""
    match op:
        case Embed():
            table = weights[op.weight]
            return lambda step: functional.embedding(step.tokens, table)
        case RmsNorm():
            return _rms_norm(slots[0], weights[op.weight], op.eps)
        case Linear():
            (x,), weight = slots, weights[op.weight]
            bias = None if op.bias is None else weights[op.bias]
            return lambda step: functional.linear(step.values[x], weight, bias)
        case Rope():
            (x,), rope = slots, op.table
            return lambda step: _rotate(step.values[x], *step.rotations[rope])
        case Attention():
            q, k, v = slots
            return lambda step: step.groups[op.group].attend(
                op, step.values[q], step.values[k], step.values[v]
            )
        case Add():
            a, b = slots
            return lambda step: step.values[a] + step.values[b]
        case Gated():
            return _gated(slots[0], slots[1], op.activation)
        case Scale():
            (x,), factor = slots, op.factor
            return lambda step: step.values[x] * factor
        case SoftCap():
            (x,), cap = slots, op.cap
            return lambda step: cap * torch.tanh(step.values[x] / cap)
        case SelectRows():
            (x,) = slots
            return lambda step: step.values[x] if step.takes_all else step.values[x][step.sample_rows]


def _rms_norm(x: int, weight: torch.Tensor, eps: float) -> Callable[[_Step], torch.Tensor]:
    size = len(weight)

    def compute(step: _Step) -> torch.Tensor:
        value = step.values[x]
        runs = value if value.shape[-1] == size else value.reshape(len(value), -1, size)
        return functional.rms_norm(runs, (size,), weight, eps).view(value.shape)

    return compute


def _gated(gate: int, up: int, activation: str) -> Callable[[_Step], torch.Tensor]:
    if activation == "silu":
        return lambda step: functional.silu(step.values[gate]) * step.values[up]
    return lambda step: functional.gelu(step.values[gate], approximate="tanh") * step.values[up]


def _rotation(
    positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and signed sines [T, 1, d] of one table: rotated = x * cos + halves_swapped(x) * sin."""
    angles = positions[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1)[:, None].to(dtype), torch.cat((-sin, sin), -1)[:, None].to(dtype)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    heads = x.view(len(x), -1, cos.shape[-1])
    return torch.addcmul(heads * cos, heads.roll(cos.shape[-1] // 2, -1), sin).view(x.shape)
