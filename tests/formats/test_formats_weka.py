"""WEKA compact JSONL: reference totals, range arithmetic against expanded lists, damaged conversations."""

from __future__ import annotations

import gzip
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.formats import (
    FormatError,
    WekaStreamedCall,
    common_prefix_blocks,
    expand_blocks,
    read_weka,
)

RANGES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 5)).map(lambda r: (r[0], r[0] + r[1])), max_size=6
)


def _call(**changes: Any) -> dict[str, Any]:
    call = {"t": 0.0, "type": "n", "model": "m", "in": 200, "out": 3, "hash_id_ranges": [[1, 2], [4, 4]]}
    return {**call, **changes}


def _conversation(*calls: dict[str, Any]) -> bytes:
    return json.dumps({"id": "c", "block_size": 64, "requests": calls}).encode() + b"\n"


def test_full_trace_matches_the_reference_counts(full_data: Path) -> None:
    conversations = main = inside = agents = steps = tokens = reused = 0
    for conversation in read_weka(full_data / "weka" / "traces_dev.jsonl.gz"):
        conversations += 1
        agents += len(conversation.subagents())
        main += len(conversation.main_calls())
        inside += sum(len(agent.requests) for agent in conversation.subagents())
        for calls in conversation.streams():
            for before, call in pairwise(calls):
                if call.think_time is None:
                    continue
                steps += 1
                tokens += call.input_tokens
                shared = common_prefix_blocks(before.hash_id_ranges, call.hash_id_ranges)
                reused += min(call.input_tokens, 64 * shared)
    assert (conversations, main, inside, agents) == (355, 23_491, 524, 48)
    assert (steps, tokens, reused) == (23_560, 2_971_915_571, 2_892_025_920)


def test_excerpt_agrees_with_its_own_totals(excerpts: Path) -> None:
    path = excerpts / "weka_excerpt.jsonl.gz"
    stated = [json.loads(line)["totals"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    conversations = list(read_weka(path))
    assert len(conversations) == len(stated) == 8
    assert sum(len(c.subagents()) for c in conversations) == 5
    for conversation, totals in zip(conversations, stated, strict=True):
        main = conversation.main_calls()
        inside = [call for agent in conversation.subagents() for call in agent.requests]
        assert sum(c.input_tokens for c in main) == totals["parent_tokens"]["input"]
        assert sum(c.output_tokens for c in main) == totals["parent_tokens"]["output"]
        assert sum(c.input_tokens for c in inside) == totals["subagent_tokens"]["input"]
        assert len(conversation.subagents()) == totals["subagent_count"]


def test_subagent_blocks_never_meet_their_parent(excerpts: Path) -> None:
    checked = 0
    for conversation in read_weka(excerpts / "weka_excerpt.jsonl.gz"):
        parent = {b for c in conversation.main_calls() for b in expand_blocks(c.hash_id_ranges)}
        for agent in conversation.subagents():
            child = {b for c in agent.requests for b in expand_blocks(c.hash_id_ranges)}
            assert child and not child & parent
            checked += 1
    assert checked == 5


def test_fields_of_a_call(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(
        _conversation(_call(), _call(type="s", ttft=1.5, think_time=2, input_types=["tool_result"]))
    )
    plain, streamed = next(read_weka(path)).main_calls()
    assert not plain.streamed and not plain.is_tool_step and plain.think_time is None
    assert isinstance(streamed, WekaStreamedCall) and streamed.streamed and streamed.is_tool_step
    assert (streamed.ttft, streamed.think_time, streamed.input_tokens) == (1.5, 2.0, 200)


@settings(deadline=None)
@given(RANGES, RANGES)
def test_common_prefix_equals_the_expanded_comparison(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    left, right = expand_blocks(a), expand_blocks(b)
    expected = 0
    for x, y in zip(left, right, strict=False):
        if x != y:
            break
        expected += 1
    assert common_prefix_blocks(a, b) == common_prefix_blocks(b, a) == expected
    assert common_prefix_blocks(a, a) == len(left)


@settings(deadline=None)
@given(st.integers(1, 40), st.data())
def test_common_prefix_does_not_depend_on_how_runs_are_cut(length: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, length), max_size=5)) | {length})
    pieces = [(start + 1, end) for start, end in zip([0, *cuts], cuts, strict=False)]
    assert common_prefix_blocks([(1, length)], pieces) == length


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (_call(hash_id_ranges=[[2, 1], [1, 4]]), "reversed"),
        (_call(**{"in": 64}), "need 1"),
        (_call(hash_id_ranges=[[0, 2**31 - 1]]), "need 3"),
        (_call(hash_id_ranges=[[1]]), "length 2"),
        (_call(type="zebra"), "zebra"),
        (_call(think_time=-1.0), "think_time"),
        (_call(model=3), "model"),
        ({"type": "subagent", "t": 1.0}, "agent_id"),
    ],
)
def test_a_bad_conversation_is_named(tmp_path: Path, call: dict[str, Any], problem: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(_conversation(_call()) + _conversation(_call(), call))
    with pytest.raises(FormatError) as caught:
        list(read_weka(path))
    assert caught.value.line == 2
    assert problem in caught.value.problem


@settings(deadline=None)
@given(position=st.integers(0, 200), junk=st.binary(min_size=1, max_size=5))
def test_damage_never_escapes_as_another_exception(
    tmp_path_factory: pytest.TempPathFactory, position: int, junk: bytes
) -> None:
    good = _conversation(_call(), _call(t=4.0))
    position = min(position, len(good) - 2)
    path = tmp_path_factory.mktemp("fuzz") / "t"
    path.write_bytes(good + good[:position] + junk + good[position + len(junk) :])
    try:
        conversations = list(read_weka(path))
    except FormatError as error:
        assert error.line is not None and error.line >= 2
    else:
        assert conversations[0].id == "c"
        assert all(math.isfinite(call.t) for c in conversations for call in c.main_calls())
