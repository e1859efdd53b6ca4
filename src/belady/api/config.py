"""Settings of the HTTP server. Knows nothing of files, flags or environment variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Key = Annotated[str, Meta(pattern=r"^[\x21-\x7e]+$")]
"""Printable ASCII, as headers carry it. Above all not empty: an unset variable must not open the server to everyone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """How the server listens, what it accepts and how it ends. Sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """0 takes any free port."""
    served_names: tuple[str, ...] = ()
    """Names clients may use for the model; the first is shown. Empty: the model's own name."""
    api_keys: tuple[Key, ...] = field(default=(), repr=False)
    """Accepted keys; empty: no key is asked for."""
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: Count = 32 * 1024 * 1024
    max_n: Count = 16
    """Most choices per prompt."""
    max_prompts: Count = 64
    """Most prompts in one completions call."""
    max_stops: Count = 16
    keepalive_seconds: Seconds = 15.0
    """A stream that is silent for this long gets a comment line."""
    drain_seconds: Seconds = 30.0
    """How long running requests may go on after a stop signal."""
    text_threads: Count = 4
    """Threads that tokenise and render templates."""
    metrics_namespace: Literal["belady", "vllm"] = "belady"
