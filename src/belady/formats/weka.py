"""WEKA compact JSONL: one recorded agent conversation a line, with its sub-agents and run-length block ids.

Format of the traces in callanjfox/kv-cache-tester. Block ids are local to a conversation and only full blocks have
one. A sub-agent lists its own calls and has its own clock; its blocks never equal a block of its parent. This file
knows no arrival process: conversations carry none.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec

from belady.formats.lines import FormatError, decode_line, read_lines

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Range = tuple[Count, Count]
"""A run of block ids, both ends included."""

_FIX = "each line must be one conversation {id, block_size, requests: [...], ...} in compact form"


class WekaCall(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="n",
    rename={"input_tokens": "in", "output_tokens": "out"},
):
    """One model call. `t` is seconds from the start of its conversation or sub-agent.

    `think_time` is the client's delay before the call, `api_time` the server's time, both in seconds and None
    where the recorder had none.
    """

    streamed: ClassVar[bool] = False

    t: Seconds
    model: str
    input_tokens: Count
    output_tokens: Count
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    stop: str = ""
    api_time: Seconds | None = None
    think_time: Seconds | None = None
    ttft: Seconds | None = None
    hash_id_ranges: tuple[Range, ...]

    @property
    def is_tool_step(self) -> bool:
        """Whether a tool result opened this call; otherwise a user message did."""
        return "tool_result" in self.input_types


class WekaStreamedCall(WekaCall, frozen=True, kw_only=True, omit_defaults=True, tag="s"):
    """A call whose answer was streamed; only these may have `ttft`, and some lack every timing."""

    streamed: ClassVar[bool] = True


class WekaSubagent(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="subagent"
):
    """A child program: started `t` seconds into the conversation; times of its calls restart at 0."""

    t: Seconds
    agent_id: str
    subagent_type: str
    status: str
    duration_ms: Count | None = None
    total_tokens: Count | None = None
    tool_use_count: Count | None = None
    models: tuple[str, ...] = ()
    tool_tokens: Count = 0
    system_tokens: Count = 0
    requests: tuple[WekaCall | WekaStreamedCall, ...]


class WekaConversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation: main calls and sub-agents in recorded order."""

    id: str
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    hash_id_scope: str = "local"
    models: tuple[str, ...] = ()
    tool_tokens: Count = 0
    system_tokens: Count = 0
    requests: tuple[WekaCall | WekaStreamedCall | WekaSubagent, ...]

    def main_calls(self) -> list[WekaCall]:
        """The calls of the main program, in order; they never overlap in time."""
        return [item for item in self.requests if isinstance(item, WekaCall)]

    def subagents(self) -> list[WekaSubagent]:
        """The child programs, in order of their start."""
        return [item for item in self.requests if isinstance(item, WekaSubagent)]

    def streams(self) -> list[Sequence[WekaCall]]:
        """Every run of calls with a history of its own: the main program first, then each sub-agent."""
        return [self.main_calls(), *(agent.requests for agent in self.subagents())]


def read_weka(path: str | os.PathLike[str]) -> Iterator[WekaConversation]:
    """Yields the conversations in file order, one in memory at a time; plain or gzipped.

    Raises `FormatError` at the first line that is not a conversation, or where a call's ranges are reversed or do
    not hold floor(in / block_size) ids.
    """
    decoder = msgspec.json.Decoder(WekaConversation)
    for number, line in read_lines(path):
        conversation = decode_line(decoder, line, path, number, _FIX)
        for calls in conversation.streams():
            for index, call in enumerate(calls):
                problem = _range_problem(call, conversation.block_size)
                if problem is not None:
                    raise FormatError(
                        path,
                        number,
                        f"{conversation.id}, call {index} at t={call.t:g}: {problem}",
                        "ranges are [first, last] with both ends included, full blocks only",
                    )
        yield conversation


def _range_problem(call: WekaCall, block_size: int) -> str | None:
    blocks = 0
    for first, last in call.hash_id_ranges:
        if last < first:
            return f"range [{first}, {last}] is reversed"
        blocks += last - first + 1
    expected = call.input_tokens // block_size
    if blocks != expected:
        return f"ranges hold {blocks} block ids, {call.input_tokens} tokens need {expected}"
    return None


def common_prefix_blocks(a: Sequence[Range], b: Sequence[Range]) -> int:
    """How many leading block ids two calls share, found by walking the runs without expanding them."""
    common = i = j = used_a = used_b = 0
    while i < len(a) and j < len(b):
        if a[i][0] + used_a != b[j][0] + used_b:
            break
        left_a = a[i][1] - a[i][0] + 1 - used_a
        left_b = b[j][1] - b[j][0] + 1 - used_b
        run = min(left_a, left_b)
        common += run
        i, used_a = (i + 1, 0) if run == left_a else (i, used_a + run)
        j, used_b = (j + 1, 0) if run == left_b else (j, used_b + run)
    return common


def expand_blocks(ranges: Sequence[Range]) -> array[int]:
    """The block ids one by one, in prompt order, as int32."""
    ids = array("i")
    for first, last in ranges:
        ids.extend(range(first, last + 1))
    return ids
