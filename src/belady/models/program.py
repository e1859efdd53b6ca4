"""Writing a network down: calls on a `Recorder` become a `Program`. No tensor is touched here.

A network is a plain Python function that calls the recorder once per op, in the order of computation. Sizes are
checked at each call, so a mistake fails at the line that made it. Does not know which backend will execute the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from belady.kernels.program import (
    Add,
    Attention,
    Embed,
    Gate,
    Gated,
    LayerGroup,
    Linear,
    Op,
    Program,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Shape,
    SoftCap,
    Weight,
    infer_shape,
)


@dataclass(frozen=True, slots=True)
class Value:
    """A handle on what an op defines; good only for the recorder that gave it."""

    id: int
    shape: Shape


class Recorder:
    """Collects ops. Each method appends one and returns the value it defines."""

    def __init__(
        self,
        weights: Mapping[str, tuple[int, ...]],
        groups: Sequence[LayerGroup],
        ropes: Sequence[tuple[float, ...]],
    ) -> None:
        """`weights`: canonical name -> shape of what may be read. `ropes`: tables of rotary frequencies."""
        self._known = weights
        self._groups = tuple(groups)
        self._ropes = tuple(ropes)
        self._ops: list[Op] = []
        self._shapes: list[Shape] = []
        self._place = {
            layer: (g, i) for g, group in enumerate(groups) for i, layer in enumerate(group.layers)
        }

    def embed(self, weight: str) -> Value:
        """Rows of `weight` at the step's token ids: [T, n]."""
        return self._append(Embed(out=self._next, weight=weight))

    def rms_norm(self, x: Value, weight: str, eps: float) -> Value:
        """Root-mean-square norm over runs of `len(weight)` entries: whole rows, or heads."""
        return self._append(RmsNorm(out=self._next, x=x.id, weight=weight, eps=eps))

    def linear(self, x: Value, weight: str, bias: str | None = None) -> Value:
        """x @ weight^T + bias."""
        return self._append(Linear(out=self._next, x=x.id, weight=weight, bias=bias))

    def rope(self, x: Value, table: int) -> Value:
        """Rotate every head by its token's position, with the frequencies of `table`."""
        return self._append(Rope(out=self._next, x=x.id, table=table))

    def attention(
        self, q: Value, k: Value, v: Value, *, layer: int, scale: float, softcap: float | None = None
    ) -> Value:
        """Store k and v as layer number `layer` of the network, and attend: [T, heads * head_dim]."""
        group, index = self._place[layer]
        return self._append(
            Attention(
                out=self._next,
                q=q.id,
                k=k.id,
                v=v.id,
                group=group,
                layer=index,
                scale=scale,
                softcap=softcap,
            )
        )

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        return self._append(Add(out=self._next, a=a.id, b=b.id))

    def gated(self, gate: Value, up: Value, activation: Gate) -> Value:
        """activation(gate) * up."""
        return self._append(Gated(out=self._next, gate=gate.id, up=up.id, activation=activation))

    def scale(self, x: Value, factor: float) -> Value:
        """x * factor."""
        return self._append(Scale(out=self._next, x=x.id, factor=factor))

    def soft_cap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap)."""
        return self._append(SoftCap(out=self._next, x=x.id, cap=cap))

    def select_rows(self, x: Value) -> Value:
        """Keep the tokens whose logits are wanted: [T, n] -> [R, n]."""
        return self._append(SelectRows(out=self._next, x=x.id))

    def finish(self, logits: Value) -> Program:
        """The program that returns `logits` [R, vocab]."""
        names = dict.fromkeys(name for op in self._ops for name in op.weights)
        return Program(
            ops=tuple(self._ops),
            weights=tuple(Weight(name=name, shape=self._known[name]) for name in names),
            groups=self._groups,
            ropes=self._ropes,
            output=logits.id,
        )

    @property
    def _next(self) -> int:
        return len(self._ops)

    def _append(self, op: Op) -> Value:
        shape = infer_shape(op, self._shapes, self._known, self._groups, self._ropes)
        self._ops.append(op)
        self._shapes.append(shape)
        return Value(op.out, shape)
