"""Sizes of a running engine, worked out from a model's shape and a memory budget. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from belady.core.client import EngineError
from belady.core.config import CoreConfig, GroupConfig
from belady.kernels.program import LayerGroup

DType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to run a model. Sizes in bytes, tokens or requests as named."""

    page_size: int = 16
    """Token slots per page."""
    cache_bytes: int = 1 << 30
    """Device memory for the KV cache, all layer groups together."""
    max_running: int = 64
    """Requests that compute at the same time."""
    step_tokens: int = 512
    """Most tokens computed in one step; longer prompts are prefilled in chunks, between which others decode."""
    max_repeat: int = 64
    """Most decode iterations planned at once while nothing else happens."""
    max_context: int | None = None
    """Longest prompt plus output; None: what the model was made for."""
    prefix_cache: bool = True
    overlap: bool = True
    """Plan the next step while one runs."""
    dtype: DType = "float32"
    device: str = "cpu"
    threads: int | None = None
    """Compute threads; None: the library's choice."""
    evict: str = "lru"
    evict_config: Mapping[str, object] = field(default_factory=dict)
    schedule: str = "fcfs"
    schedule_config: Mapping[str, object] = field(default_factory=dict)


def resolve(
    config: EngineConfig, groups: Sequence[LayerGroup], page_bytes: Sequence[int], context_length: int
) -> CoreConfig:
    """Pool sizes and limits of the core. `page_bytes[g]` is what one page of group g takes.

    The budget is split so that a sliding-window group gets what its share of a long context needs, but at least one
    window and one step's chunk. Raises `EngineError` (`cache_too_small`) when not even one small request would fit, and
    `belady.core.config.ConfigError` for limits that contradict each other.
    """
    context = config.max_context or context_length
    if context > context_length:
        raise EngineError(
            "invalid_request",
            f"engine.max_context is {context}, but this model's window is {context_length} tokens: ask for at most that",
        )
    windows = [group.window for group in groups]
    if windows[0] is not None:
        # The core needs a group that holds whole contexts; kernels apply the window all the same.
        windows[0] = None
    pages = _split(config, windows, page_bytes, context)
    return CoreConfig(
        groups=tuple(
            GroupConfig(name=group.name, pages=n, window=window, bytes_per_token=size // config.page_size)
            for group, n, window, size in zip(groups, pages, windows, page_bytes, strict=True)
        ),
        page_size=config.page_size,
        max_context=min(context, (pages[0] - 1) * config.page_size),
        max_running=config.max_running,
        step_tokens=config.step_tokens,
        max_repeat=config.max_repeat,
        prefix_cache=config.prefix_cache,
    )


def _split(
    config: EngineConfig, windows: Sequence[int | None], page_bytes: Sequence[int], context: int
) -> list[int]:
    """Pages per group: the most that the budget holds."""
    least = 2 + -(-2 // config.page_size)
    smallest = _bytes(least, config, windows, page_bytes, context)
    if smallest > config.cache_bytes:
        raise EngineError(
            "cache_too_small",
            f"a KV cache of {config.cache_bytes} bytes cannot hold one request of this model: "
            f"give it at least {smallest} (cache.bytes, --cache-bytes)"
            + (" or lower step_tokens" if any(w is not None for w in windows) else ""),
        )
    low, high = least, config.cache_bytes // page_bytes[0] + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _bytes(middle, config, windows, page_bytes, context) <= config.cache_bytes:
            low = middle
        else:
            high = middle
    return _pages(low, config, windows, context)


def _pages(full: int, config: EngineConfig, windows: Sequence[int | None], context: int) -> list[int]:
    """Pages of each group when the full-attention groups have `full`.

    A context of n tokens needs min(n, window) of them in a window group; twice that leaves as much for cached prefixes.
    """
    pages = []
    for window in windows:
        if window is None:
            pages.append(full)
            continue
        least = -(-(window + min(config.step_tokens, context)) // config.page_size) + 2
        share = min(1.0, 2 * window / context)
        pages.append(max(least, int(full * share)))
    return pages


def _bytes(
    full: int, config: EngineConfig, windows: Sequence[int | None], page_bytes: Sequence[int], context: int
) -> int:
    pages = _pages(full, config, windows, context)
    return sum(n * size for n, size in zip(pages, page_bytes, strict=True))
