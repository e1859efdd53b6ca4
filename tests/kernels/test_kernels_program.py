"""Programs: checked when made, printable, and the same after a round trip through text."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paged_rows import FULL, WINDOWED

from belady.kernels.errors import ProgramError
from belady.kernels.program import Add, Embed, Linear, Program, RmsNorm, SelectRows, Weight
from belady.models.registry import build_program

EMBED = Embed(out=0, weight="e")
WEIGHTS = (Weight(name="e", shape=(10, 4)),)


def _program(*ops, weights=WEIGHTS, output: int | None = None) -> Program:
    last = ops[-1].out if output is None else output
    return Program(ops=ops, weights=weights, groups=(), ropes=(), output=last)


def test_a_small_program_knows_its_shapes() -> None:
    program = _program(EMBED, SelectRows(out=1, x=0), Linear(out=2, x=1, weight="e"))
    assert program.shapes() == (("T", 4), ("R", 4), ("R", 10))
    assert program.vocab_size == 10
    assert program.text().splitlines() == [
        "%0 [T, 4] = embed(weight=e)",
        "%1 [R, 4] = select_rows(%0)",
        "%2 [R, 10] = linear(%1, weight=e)",
        "return %2",
    ]


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ((EMBED, SelectRows(out=1, x=1)), "%1 is not defined before it is read"),
        ((EMBED, SelectRows(out=2, x=0)), "defines %2, not %1"),
        ((EMBED, Linear(out=1, x=0, weight="w")), "no weight w"),
        ((EMBED, RmsNorm(out=1, x=0, weight="e", eps=1e-5)), "sizes do not fit"),
        ((EMBED, SelectRows(out=1, x=0), Add(out=2, a=0, b=1)), "sizes do not fit"),
        ((EMBED,), "no rows to sample"),
    ],
)
def test_a_program_that_does_not_fit_is_refused(ops, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        _program(*ops)


def test_weights_are_exactly_those_read() -> None:
    extra = (*WEIGHTS, Weight(name="unread", shape=(1,)))
    with pytest.raises(ProgramError, match="exactly those read"):
        _program(EMBED, SelectRows(out=1, x=0), weights=extra)


def test_every_layer_is_attended_once() -> None:
    program = build_program(FULL)
    more = (dataclasses.replace(program.groups[0], layers=(0, 1, 2, 3)),)
    with pytest.raises(ProgramError, match="attended exactly once"):
        dataclasses.replace(program, groups=more)


@pytest.mark.parametrize("config", [FULL, WINDOWED], ids=["full", "windowed"])
def test_text_form_round_trips(config) -> None:
    program = build_program(config)
    again = Program.from_json(program.to_json())
    assert again == program and hash(again) == hash(program)
    assert again.digest() == program.digest() == build_program(config).digest()


def test_digests_tell_programs_apart() -> None:
    other = dataclasses.replace(FULL, norm_eps=1e-6)
    assert build_program(FULL).digest() != build_program(other).digest()


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_what_is_no_program_is_refused(junk) -> None:
    with pytest.raises(ProgramError):
        Program.from_json(json.dumps(junk))


@given(cut=st.integers(0, 5000), key=st.sampled_from(["ops", "weights", "groups", "ropes", "output"]))
def test_damaged_programs_are_refused(cut: int, key: str) -> None:
    text = build_program(FULL).to_json()
    raw = json.loads(text)
    del raw[key]
    for damaged in (text[: cut % len(text)], json.dumps(raw), json.dumps(raw | {key: "x"})):
        with pytest.raises(ProgramError):
            Program.from_json(damaged)
