"""The demo's workload: four agents that share instructions, grow their contexts and run at the same time.

A planner, two researchers and a writer work on one brief for a few rounds, over HTTP with streaming. Knows the wire
protocol and a clock; knows nothing of servers or terminals.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from belady.api.sse import payload
from belady.cli.errors import CommandFailed

SHARED = """You are one of four colleagues who prepare a short public briefing together. The planner decides what comes \
next, the two researchers gather what is known, and the writer turns notes into prose. Everybody sees only what is \
handed over in the conversation, so say what matters and leave out greetings, apologies and remarks about yourself.

House rules for all four:
1. Write plain English for a curious reader without training in the field. Explain a technical word when you use it.
2. Prefer a concrete example or a number to a general statement. When you are not sure of a number, say "about".
3. Keep every message under sixty words. One paragraph, no headings, no lists, no quotation marks.
4. Never repeat what a colleague has already said. Add to it, sharpen it, or correct it.
5. If a colleague is wrong, say so politely in the first sentence and give the reason.
6. Name open questions at the end of a message, at most one, so that the planner can pick it up.
7. The briefing has three parts: what it is, why it matters now, and what to watch for. Keep them apart.
8. The reader decides in ten seconds whether to read on. The first sentence has to earn the second."""

TOPIC = "how coastal towns can protect themselves from storm floods"

ROLES: Mapping[str, str] = {
    "planner": "You are the planner.",
    "researcher-1": "You are the first researcher. Your field is engineering: dikes, barriers, drainage, costs.",
    "researcher-2": "You are the second researcher. Your field is nature and people: marshes, dunes, habits, warnings.",
    "writer": "You are the writer.",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One finished model call, as its client saw it. Times in seconds."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    first_token: float
    decoding: float
    """First to last token."""


@dataclass(slots=True)
class Agent:
    """A program: one growing conversation."""

    name: str
    messages: list[dict[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def hand_over(self, text: str) -> None:
        """Give the agent its next task."""
        if not self.messages:
            self.messages.append({"role": "system", "content": SHARED})
            text = f"{ROLES[self.name]} The topic is {TOPIC}. {text}"
        self.messages.append({"role": "user", "content": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How much to do."""

    rounds: int = 4
    max_tokens: int = 32


async def drive(
    client: httpx.AsyncClient, workload: Workload, on_call: Callable[[str, int, str], None]
) -> list[Agent]:
    """Run the four agents; `on_call(agent, round, text)` hears of each finished call. Raises `CommandFailed`."""
    agents = {name: Agent(name) for name in ROLES}

    async def ask(name: str, number: int, task: str) -> str:
        agents[name].hand_over(task)
        text = await _call(client, agents[name], workload, seed=number)
        on_call(name, number, text)
        return text

    plan = await ask("planner", 1, "Say which question the researchers should answer first.")
    for number in range(1, workload.rounds + 1):
        notes = await asyncio.gather(
            ask("researcher-1", number, f"The planner says: {plan}\nGive your findings."),
            ask("researcher-2", number, f"The planner says: {plan}\nGive your findings."),
        )
        joined = f"First researcher: {notes[0]}\nSecond researcher: {notes[1]}"
        writing = ask("writer", number, f"{joined}\nWrite the next paragraph of the briefing.")
        if number == workload.rounds:
            await writing
        else:
            # The planner thinks ahead while the writer writes.
            _, plan = await asyncio.gather(
                writing, ask("planner", number + 1, f"{joined}\nSay which question comes next.")
            )
    return list(agents.values())


async def _call(client: httpx.AsyncClient, agent: Agent, workload: Workload, seed: int) -> str:
    body = {
        "messages": agent.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": workload.max_tokens,
        "temperature": 0.7,
        "repetition_penalty": 1.05,
        "seed": 100 * list(ROLES).index(agent.name) + seed,
        "session_id": f"demo/{agent.name}",
    }
    started = time.monotonic()
    first = last = started
    parts: list[str] = []
    usage: dict[str, Any] | None = None
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            await response.aread()
            raise CommandFailed(
                f"{agent.name}: the server said {response.status_code}: {response.text[:300]}"
            )
        async for line in response.aiter_lines():
            data = payload(line)
            if data is None:
                continue
            chunk = json.loads(data)
            if "error" in chunk:
                raise CommandFailed(f"{agent.name}: {chunk['error']['message']}")
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                if text := choice["delta"].get("content"):
                    last = time.monotonic()
                    first = first if parts else last
                    parts.append(text)
    if usage is None:
        raise CommandFailed(f"{agent.name}: the stream ended without usage")
    answer = "".join(parts).strip()
    agent.messages.append({"role": "assistant", "content": answer})
    agent.calls.append(
        Call(
            usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            usage["completion_tokens"],
            first - started,
            last - first,
        )
    )
    return answer
