"""The narrow op set, and a network as a program over it: the one thing that every backend executes.

A program is data: ops in order, each naming the values and weights it reads and the value it defines. Sizes are
integers, or symbols for what changes from step to step: `T` tokens computed, `R` rows whose logits are wanted. Token
ids, positions, block tables and the key-value cache are implicit: they come with each step, and only `Embed`, `Rope`,
`Attention` and `SelectRows` read them. Knows neither model families nor how anything is computed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import msgspec

from belady.kernels.errors import ProgramError

Dim = int | Literal["T", "R"]
Shape = tuple[Dim, ...]
Gate = Literal["silu", "gelu_tanh"]

FORMAT = 1
"""Version of the serialised form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers whose key-value cache has one shape and one lifetime; each group has page pools of its own."""

    name: str
    layers: tuple[int, ...]
    """Layer numbers of the network, ascending; `Attention.layer` is an index into this."""
    window: int | None
    """A query sees this many keys, its own included; None: all before it."""
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Op:
    out: int
    """The value defined."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Fields that hold the values read."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Values read, in order."""
        return tuple(getattr(self, field) for field in self.reads)

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights read."""
        named = (getattr(self, field, None) for field in ("weight", "bias"))
        return tuple(name for name in named if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(_Op):
    """Rows of `weight` [vocab, n] at the token ids: [T, n]."""

    weight: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm(_Op):
    """x / sqrt(mean(x^2) + eps) * weight over runs of `len(weight)` entries of the last axis: shape of x.

    A weight shorter than the axis normalises each head by itself.
    """

    reads = ("x",)
    x: int
    weight: str
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(_Op):
    """x @ weight^T + bias, weight [n, m] : [..., m] -> [..., n]."""

    reads = ("x",)
    x: int
    weight: str
    bias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope(_Op):
    """Rotate the pairs (i, i + d/2) of every head of d entries by position * frequency: shape of x.

    `table` is an index into `Program.ropes`, whose length is d/2.
    """

    reads = ("x",)
    x: int
    table: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(_Op):
    """Store k and v [T, kv_heads * d] of the step's tokens in the cache, then let every query read its row's keys.

    Causal, and windowed where the group is. Scores are multiplied by `scale`, then capped to
    softcap * tanh(score / softcap) if `softcap` is set. Query heads share key heads in order: shape of q.
    """

    reads = ("q", "k", "v")
    q: int
    k: int
    v: int
    group: int
    layer: int
    """Index into the group's layers."""
    scale: float
    softcap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(_Op):
    """a + b of equal shape."""

    reads = ("a", "b")
    a: int
    b: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated(_Op):
    """activation(gate) * up of equal shape."""

    reads = ("gate", "up")
    gate: int
    up: int
    activation: Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(_Op):
    """x * factor."""

    reads = ("x",)
    x: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftCap(_Op):
    """cap * tanh(x / cap)."""

    reads = ("x",)
    x: int
    cap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRows(_Op):
    """The tokens whose logits are wanted: [T, n] -> [R, n]."""

    reads = ("x",)
    x: int


Op = Embed | RmsNorm | Linear | Rope | Attention | Add | Gated | Scale | SoftCap | SelectRows

_NAMES: dict[type, str] = {
    Embed: "embed",
    RmsNorm: "rms_norm",
    Linear: "linear",
    Rope: "rope",
    Attention: "attention",
    Add: "add",
    Gated: "gated",
    Scale: "scale",
    SoftCap: "soft_cap",
    SelectRows: "select_rows",
}
_CLASSES = {name: kind for kind, name in _NAMES.items()}
assert set(_NAMES) == set(get_args(Op)), "every op has a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A tensor that the program reads: its canonical name and shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole network. Immutable, hashable, checked when made (raises ProgramError).

    Values are numbered in the order of definition: `ops[i].out == i`.
    """

    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    """Every weight read, each once, in the order of first use."""
    groups: tuple[LayerGroup, ...]
    ropes: tuple[tuple[float, ...], ...]
    """Rotary angle per position of each pair, one table per kind of layer."""
    output: int
    """The value that holds the logits, [R, vocab]."""

    def __post_init__(self) -> None:
        shapes = self.shapes()
        _need(0 <= self.output < len(shapes), f"output %{self.output} is not defined")
        _need(
            shapes[self.output][0] == "R",
            f"output %{self.output} has no rows to sample: {shapes[self.output]}",
        )
        used = list(dict.fromkeys(name for op in self.ops for name in op.weights))
        _need(
            used == [w.name for w in self.weights],
            "weights are not exactly those read, in order of first use",
        )
        stored = [(op.group, op.layer) for op in self.ops if isinstance(op, Attention)]
        owned = [(g, i) for g, group in enumerate(self.groups) for i in range(len(group.layers))]
        _need(sorted(stored) == owned, "every layer of every group must be attended exactly once")

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        width = self.shapes()[self.output][1]
        assert isinstance(width, int), "widths are numbers"
        return width

    def shapes(self) -> tuple[Shape, ...]:
        """Shape of every value. Raises ProgramError where the ops do not fit together."""
        weights = {w.name: w.shape for w in self.weights}
        shapes: list[Shape] = []
        for index, op in enumerate(self.ops):
            _need(op.out == index, f"op {index} ({_NAMES[type(op)]}) defines %{op.out}, not %{index}")
            shapes.append(infer_shape(op, shapes, weights, self.groups, self.ropes))
        return tuple(shapes)

    def text(self) -> str:
        """The program for a person to read: one op a line with the shape it defines."""
        lines = [f"group {i} {_fields(g)}" for i, g in enumerate(self.groups)]
        lines += [f"rope {i} {len(t)} frequencies {t[0]:g} .. {t[-1]:g}" for i, t in enumerate(self.ropes)]
        for op, shape in zip(self.ops, self.shapes(), strict=True):
            size = ", ".join(str(d) for d in shape)
            lines.append(f"%{op.out} [{size}] = {_NAMES[type(op)]}({_fields(op)})")
        return "\n".join([*lines, f"return %{self.output}"])

    def to_json(self) -> str:
        """A stable text form: equal programs give equal text."""
        return json.dumps(
            {
                "format": FORMAT,
                "groups": [dataclasses.asdict(g) for g in self.groups],
                "ropes": self.ropes,
                "weights": [dataclasses.asdict(w) for w in self.weights],
                "ops": [{"op": _NAMES[type(op)]} | dataclasses.asdict(op) for op in self.ops],
                "output": self.output,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Undo `to_json`. Raises ProgramError for anything else."""
        try:
            raw = msgspec.json.decode(text, type=_Serialised)
            _need(raw.format == FORMAT, f"format {raw.format} is not {FORMAT}: record the program again")
            return cls(
                ops=tuple(_op_from(fields) for fields in raw.ops),
                weights=raw.weights,
                groups=raw.groups,
                ropes=raw.ropes,
                output=raw.output,
            )
        except msgspec.MsgspecError as error:
            raise ProgramError(f"this is not a serialised program ({error}): record it again") from error

    def digest(self) -> str:
        """Hexadecimal SHA-256 of the text form: a key under which compiled plans can be kept."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def infer_shape(
    op: Op,
    shapes: Sequence[Shape],
    weights: Mapping[str, tuple[int, ...]],
    groups: Sequence[LayerGroup],
    ropes: Sequence[tuple[float, ...]],
) -> Shape:
    """Shape of the value that `op` defines, given those before it. Raises ProgramError when it can't be computed."""
    where = f"%{op.out} = {_NAMES[type(op)]}({_fields(op)})"
    for value in op.inputs:
        _need(0 <= value < len(shapes), f"{where}: %{value} is not defined before it is read")
    for name in op.weights:
        _need(name in weights, f"{where}: there is no weight {name}")
    shape = _shape(op, [shapes[v] for v in op.inputs], weights, groups, ropes)
    _need(shape is not None, f"{where}: sizes do not fit: reads {[shapes[v] for v in op.inputs]}")
    assert shape is not None, "checked above"
    return shape


def _shape(
    op: Op,
    read: list[Shape],
    weights: Mapping[str, tuple[int, ...]],
    groups: Sequence[LayerGroup],
    ropes: Sequence[tuple[float, ...]],
) -> Shape | None:
    """As `infer_shape`, None where sizes do not fit."""
    match op:
        case Embed():
            w = weights[op.weight]
            return ("T", w[1]) if len(w) == 2 else None
        case RmsNorm():
            w = weights[op.weight]
            return read[0] if len(w) == 1 and _width(read[0]) % w[0] == 0 else None
        case Linear():
            w = weights[op.weight]
            fits = len(w) == 2 and _width(read[0]) == w[1]
            fits = fits and (op.bias is None or weights[op.bias] == (w[0],))
            return (*read[0][:-1], w[0]) if fits else None
        case Rope():
            fits = 0 <= op.table < len(ropes) and _width(read[0]) % (2 * len(ropes[op.table])) == 0
            return read[0] if fits and read[0][0] == "T" else None
        case Attention():
            if not 0 <= op.group < len(groups):
                return None
            group = groups[op.group]
            fits = 0 <= op.layer < len(group.layers) and all(shape[0] == "T" for shape in read)
            width = group.kv_heads * group.head_dim
            fits = fits and _width(read[1]) == _width(read[2]) == width and _width(read[0]) % width == 0
            return read[0] if fits else None
        case Add() | Gated():
            return read[0] if read[0] == read[1] else None
        case SelectRows():
            return ("R", *read[0][1:]) if read[0][0] == "T" else None
        case Scale() | SoftCap():
            return read[0]


def _width(shape: Shape) -> int:
    width = shape[-1]
    assert isinstance(width, int), "only the first size is symbolic"
    return width


def _fields(item: Any) -> str:
    """Fields as `name=value`; values that ops read are written %n."""
    reads = getattr(item, "reads", ())
    shown = []
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if field.name == "out" or value is None:
            continue
        text = f"{value:g}" if isinstance(value, float) and not math.isinf(value) else str(value)
        shown.append(f"%{value}" if field.name in reads else f"{field.name}={text}")
    return ", ".join(shown)


class _Serialised(msgspec.Struct):
    format: int
    groups: tuple[LayerGroup, ...]
    ropes: tuple[tuple[float, ...], ...]
    weights: tuple[Weight, ...]
    ops: list[dict[str, Any]]
    output: int


def _op_from(fields: dict[str, Any]) -> Op:
    name = fields.pop("op", None)
    _need(name in _CLASSES, f"unknown op {name!r}: the program was recorded by another version")
    op: Op = msgspec.convert(fields, _CLASSES[name])
    return op


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise ProgramError(message)
