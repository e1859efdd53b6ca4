"""WEKA conversations as closed-loop programs: recorded prompts, outputs and think times, sub-agents as children.

Conversations carry no arrival times, so N at a time are overlaid; which ones meet is drawn from a seed. Block ids are
local to a conversation, hence a namespace each: nothing is shared between conversations here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from belady.core.paritylog import Output
from belady.core.request import Request
from belady.formats import WekaCall, WekaConversation, WekaSubagent, expand_blocks, read_weka
from belady.sim.workload.agents import Child, ClosedLoop, Turn
from belady.sim.workload.base import Call, Limits, WorkloadError


@dataclass(frozen=True, slots=True)
class _Script:
    """Calls of one program of a conversation, with the sub-agents that start behind each of them."""

    conversation: str
    program: str
    parent: str | None
    items: Sequence[WekaCall | WekaSubagent]
    limits: Limits
    block: int
    time_scale: float

    def turns(self) -> Iterator[Turn]:
        calls = [(i, item) for i, item in enumerate(self.items) if isinstance(item, WekaCall)]
        for place, (index, call) in enumerate(calls):
            upto, following = calls[place + 1] if place + 1 < len(calls) else (len(self.items), None)
            agents = [item for item in self.items[index + 1 : upto] if isinstance(item, WekaSubagent)]
            yield Turn(
                lambda rid, at, call=call: self._call(rid, at, call),  # type: ignore[misc]
                self._think(call, following, agents) * self.time_scale,
                [self._child(call, agent) for agent in agents],
            )

    def _call(self, rid: int, at: float, call: WekaCall) -> Call:
        prompt, most, output = self.limits.fit(call.input_tokens, call.output_tokens)
        request = Request(
            rid=rid,
            prompt=expand_blocks(call.hash_id_ranges)[: prompt // self.block].tobytes(),
            prompt_tokens=max(1, prompt),
            max_tokens=most,
            key_tokens=self.block,
            namespace=self.conversation,
            program=self.program,
            parent=self.parent,
        )
        return Call(at, request, Output(length=output))

    def _think(self, call: WekaCall, following: WekaCall | None, agents: Sequence[WekaSubagent]) -> float:
        """Seconds before the next call: as recorded, or from the clock where nothing was; less what children took."""
        if following is None:
            return 0.0
        ended = call.t + (call.api_time or 0.0)
        think = following.think_time if following.think_time is not None else max(0.0, following.t - ended)
        joined = [a.t + (a.duration_ms or 0) / 1000 for a in agents if _joined(a)]
        return max(0.0, min(think, following.t - max(joined))) if joined else think

    def _child(self, call: WekaCall, agent: WekaSubagent) -> Child:
        script = _Script(
            self.conversation,
            f"{self.conversation}/{agent.agent_id}",
            self.program,
            agent.requests,
            self.limits,
            self.block,
            self.time_scale,
        )
        delay = max(0.0, agent.t - call.t - (call.api_time or 0.0))
        return Child(delay * self.time_scale, script, _joined(agent))


def _joined(agent: WekaSubagent) -> bool:
    """Whether the parent waited for the result; an asynchronous launch goes on at once."""
    return agent.status != "async_launched"


def weka(
    path: Path,
    limits: Limits,
    *,
    concurrent: int,
    stagger: float,
    seed: int,
    time_scale: float,
    count: int | None,
    key_tokens: int,
) -> ClosedLoop:
    """`count` conversations in an order drawn from `seed`, `concurrent` at a time; the first ones start within
    `stagger` seconds. Raises `WorkloadError` where a block length differs from `key_tokens`."""
    conversations = list(read_weka(path))
    for one in conversations:
        if one.block_size != key_tokens:
            raise WorkloadError(
                f"{path}: blocks of {one.block_size} tokens, but the core's keys stand for {key_tokens}; "
                f"set core.key_tokens = {one.block_size} and a multiple of it as core.page_size"
            )
    rng = random.Random(f"weka {seed}")
    rng.shuffle(conversations)
    conversations = conversations[:count]
    starts = sorted(rng.uniform(0.0, stagger) for _ in conversations[:concurrent])
    scripts = [_Script(c.id, c.id, None, _items(c), limits, c.block_size, time_scale) for c in conversations]
    total = sum(len(stream) for c in conversations for stream in c.streams())
    note = f"{len(conversations):,} conversations, {concurrent:,} at a time, overlaid with seed {seed}"
    return ClosedLoop(scripts, starts, limits, concurrent, total, [note])


def _items(conversation: WekaConversation) -> Sequence[WekaCall | WekaSubagent]:
    """Recorded order; sub-agents listed before the first call start behind it."""
    items = list(conversation.requests)
    first = next((i for i, item in enumerate(items) if isinstance(item, WekaCall)), 0)
    return [items[first], *items[:first], *items[first + 1 :]] if items else items
