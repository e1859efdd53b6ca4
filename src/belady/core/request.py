"""What the core knows about one model call. It knows neither text nor sampling: those stay with the driver."""

from __future__ import annotations

from dataclasses import dataclass, field

from belady.core.forecast import Reuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model call, immutable once it has arrived.

    `prompt` holds the prefix keys as little-endian int32, `key_tokens` tokens each: token ids in an engine
    (`key_tokens == 1`), block ids of a trace in a simulation (`key_tokens == 64` or `512`); the last key may
    stand for fewer tokens. `prompt_tokens` is the true prompt length in tokens.
    """

    rid: int
    prompt: bytes
    prompt_tokens: int
    max_tokens: int
    """Upper bound on output tokens; never the true output length, which policies must not see."""
    key_tokens: int = 1
    namespace: str = ""
    """Model revision, adapter and cache salt: two namespaces never share a page."""
    priority: int = 0
    """Higher is sooner."""
    program: str | None = None
    parent: str | None = None
    reuse: tuple[Reuse, ...] = ()
    """Next use by prefix position, where a driver knows the future (see `Reuse`)."""
    params: object = field(default=None, compare=False, repr=False)
    """Opaque to the core; the executor reads its sampling parameters here."""
