"""Sizes and limits of a decision core. Pure values: resolving them from a model or a machine is the driver's work."""

from __future__ import annotations

from dataclasses import dataclass


class ConfigError(ValueError):
    """A configuration that cannot work; the message names the field and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """One layer group: layers whose KV has one shape and one lifetime, with a page pool of its own."""

    name: str
    pages: int
    window: int | None = None
    """Sliding-window length in tokens, None for full attention."""
    bytes_per_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Everything `Scheduler` needs to know. `groups[0]` must be a full-attention group."""

    groups: tuple[GroupConfig, ...]
    page_size: int = 16
    """Token slots per page, in every group."""
    key_tokens: int = 1
    """Tokens per prefix key: 1 for token ids, the block length where a trace has block ids."""
    max_context: int = 8192
    max_running: int = 64
    step_tokens: int = 2048
    """Token budget of one step, decode rows included."""
    step_seconds: float | None = None
    """Time budget of one step; needs a `StepCost`. Prefill chunks shrink to meet it."""
    step_bytes: int | None = None
    """Bytes of page copies that one step may start, all layer groups together; the first admission always may."""
    max_repeat: int = 64
    """Longest run of decode iterations that one plan may stand for."""
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        check = _require
        check(bool(self.groups), "groups: at least one layer group is needed")
        check(self.groups[0].window is None, "groups[0]: must be a full-attention group (window = None)")
        check(self.page_size >= 1, f"page_size: must be at least 1, not {self.page_size}")
        check(
            self.key_tokens >= 1 and self.page_size % self.key_tokens == 0,
            f"key_tokens: {self.key_tokens} must divide page_size ({self.page_size})",
        )
        check(self.max_running >= 1, "max_running: must be at least 1")
        check(
            self.step_tokens > self.max_running,
            f"step_tokens: {self.step_tokens} must exceed max_running ({self.max_running}), "
            "since every running request decodes in every step",
        )
        check(self.step_bytes is None or self.step_bytes >= 1, "step_bytes: must be at least 1 byte")
        check(self.max_repeat >= 1, "max_repeat: must be at least 1")
        check(self.max_context >= 2, "max_context: must be at least 2 tokens")
        for i, group in enumerate(self.groups):
            check(group.pages >= 2, f"groups[{i}].pages: at least 2 pages are needed, not {group.pages}")
            if group.window is not None:
                check(group.window >= 1, f"groups[{i}].window: must be at least 1 token")
                need = -(-group.window // self.page_size) + 2
                check(
                    group.pages >= need,
                    f"groups[{i}].pages: {group.pages} pages cannot hold one window of {group.window} tokens "
                    f"and a chunk; give it at least {need}",
                )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
