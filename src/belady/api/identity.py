"""Who sent a request: one normaliser from headers and body fields to a program and its parent.

Identity is passive: it is passed on, and only a configured policy acts on it. Values are client-supplied, so they are
bounded and never logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from belady.api.errors import invalid

MAX_ID = 256
_WHOLE = re.compile(r"-?[0-9]{1,10}")

EXPLICIT = ("x-dynamo-session-id", "x-dynamo-parent-session-id")
NATIVE: tuple[tuple[str, str | None], ...] = (
    ("x-session-id", "x-parent-session-id"),
    ("x-session-affinity", "x-parent-session-id"),
    ("thread-id", "x-codex-parent-thread-id"),
    ("session-id", None),
    ("session_id", None),
    ("x-conversation-id", None),
)
"""(session header, parent header) per kind of client; the first non-empty session wins."""

AGENT_SESSION = "x-claude-code-session-id"
AGENT_ID = "x-claude-code-agent-id"
AGENT_PARENT = "x-claude-code-parent-agent-id"


@dataclass(frozen=True, slots=True)
class Identity:
    """One reasoning chain and, for a sub-agent, the chain that started it."""

    program: str | None = None
    parent: str | None = None


def identify(headers: Mapping[str, str], session_id: str | None) -> Identity:
    """Explicit header first, then the body's `session_id`, then what agents send by themselves.

    When an explicit header is there, native ones are ignored, the parent included. Header names in lower case.
    """
    if program := _value(headers, EXPLICIT[0]):
        return Identity(program, _value(headers, EXPLICIT[1]))
    if session_id:
        return Identity(_bounded("session_id", session_id))
    if session := _value(headers, AGENT_SESSION):
        agent, parent = _value(headers, AGENT_ID), _value(headers, AGENT_PARENT)
        if agent is None:
            return Identity(session)
        return Identity(f"{session}/{agent}", f"{session}/{parent}" if parent else session)
    for name, parent_name in NATIVE:
        if program := _value(headers, name):
            return Identity(program, _value(headers, parent_name) if parent_name else None)
    return Identity()


def priority(headers: Mapping[str, str], body: int | None) -> int:
    """Higher is sooner. The body says so directly; vLLM's header counts the other way and wins when both are set."""
    text = headers.get("x-vllm-priority", "").strip()
    if text:
        if not _WHOLE.fullmatch(text):
            raise invalid("the header X-Vllm-Priority must be a whole number", "X-Vllm-Priority")
        return -int(text)
    value = body or 0
    if abs(value) >= 2**31:
        raise invalid("`priority` must fit in 32 bits", "priority")
    return value


def _value(headers: Mapping[str, str], name: str) -> str | None:
    text = headers.get(name, "").strip()
    return _bounded(name, text) if text else None


def _bounded(name: str, text: str) -> str:
    if len(text) > MAX_ID:
        raise invalid(f"`{name}` has {len(text)} characters: at most {MAX_ID} are allowed", name)
    return text
