"""The engine as its callers see it: one protocol satisfied by the real engine, the simulator and a mock.

Knows nothing of HTTP. Types here are native; JSON and templates stay at the edge.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from belady.core.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to choose tokens. Validated by whoever builds it; executors trust it."""

    max_tokens: int
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    """None: no log-probabilities; n >= 0: of the sampled token and of the n most likely ones."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """One generation to run: token ids in, deltas out. `n` choices share the prompt."""

    request_id: str
    prompt_ids: Sequence[int]
    sampling: Sampling
    n: int = 1
    priority: int = 0
    salt: str = ""
    program: str | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """`token` is its text (lossy for partial UTF-8), `data` its bytes."""

    token_id: int
    token: str
    data: bytes
    logprob: float
    top: tuple[tuple[int, str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one choice; `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new for choice `index`. The last delta of a choice has `finish_reason` and `usage`."""

    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None
    """`stop`, `length`, `abort` or `error`."""
    stop_reason: str | int | None = None
    """The stop string or token id that ended it."""
    usage: Usage | None = None
    detail: str = ""
    """Why, when `finish_reason` is `error` or `abort`."""


class EngineError(Exception):
    """A request cannot be served; `code` is machine readable, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a client may ask about the served model."""

    name: str
    context_length: int
    vocab_size: int
    cache_tokens: int
    """Token slots of the device KV pool (its smallest layer group)."""
    page_size: int
    created: int = 0
    model_context: int | None = None
    """What the model itself could take, where the server holds less; None: the same as `context_length`."""


class TextPort(Protocol):
    """Text in and out of tokens. Methods may be slow: callers run them off the event loop. Thread-safe."""

    def encode(self, text: str, *, add_special: bool = True) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str: ...

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt text; raises `belady.text` errors for a missing or failing template."""
        ...


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot for metrics; `usage` is the used share (0 to 1) of the busiest layer group's pool."""

    running: int
    waiting: int
    usage: float
    cached_tokens: int


class EngineClient(Protocol):
    """Satisfied by the engine, the simulator and `MockEngine`."""

    @property
    def model(self) -> ModelInfo: ...

    @property
    def text(self) -> TextPort: ...

    def generate(self, request: Generate) -> AsyncIterator[Delta]:
        """Deltas of all choices, interleaved; closing the iterator aborts and frees. Raises `EngineError`."""
        ...

    def stats(self) -> EngineStats: ...

    def subscribe(self, observer: Callable[[Sequence[Event]], None]) -> None:
        """`observer` gets each step's events on the engine's thread; it must be quick and must not raise."""
        ...

    async def drain(self) -> None:
        """Refuse new requests and return when the running ones have ended."""
        ...

    async def close(self) -> None: ...
