"""`MockEngine`: an `EngineClient` without a model, for tests of servers and clients. Shipped, and named for what it is.

It echoes: the answer to a prompt is derived from its last user line, byte by byte, the same every time. It remembers
prompts, so that cached tokens look like those of a prefix cache.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from belady.core.client import (
    Delta,
    EngineError,
    EngineStats,
    Generate,
    ModelInfo,
    TokenLogprob,
    Usage,
)
from belady.core.events import Event, Finished, FinishReason, FirstToken, Loss, Scheduled
from belady.text.errors import TemplateError

BOS, EOS = 256, 257
VOCAB = 258
USER, ASSISTANT = "[user] ", "[assistant] "
REMEMBERED = 32


class MockText:
    """A tokenizer of bytes, and a template of one line per message."""

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        ids = list(text.encode("utf-8", "replace"))
        return [BOS, *ids] if add_special else ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        special = {BOS: "" if skip_special else "<s>", EOS: "" if skip_special else "</s>"}
        parts: list[str] = []
        run = bytearray()
        for token in ids:
            if token < 256:
                run.append(token)
                continue
            parts += [run.decode("utf-8", "replace"), special[token]]
            run.clear()
        return "".join([*parts, run.decode("utf-8", "replace")])

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """Raises `TemplateError` for a system message that is not the first."""
        if any(message["role"] == "system" for message in messages[1:]):
            raise TemplateError("the system message must come first")
        lines = [f"[{message['role']}] {message['content']}\n" for message in messages]
        if tools:
            lines.insert(0, f"[tools] {len(tools)}\n")
        return "".join(lines) + (ASSISTANT if add_generation_prompt else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MockConfig:
    """Sizes, delays (seconds) and faults of a `MockEngine`."""

    name: str = "mock"
    context_length: int = 1024
    cache_tokens: int = 4096
    page_size: int = 16
    first_delay: float = 0.0
    token_delay: float = 0.0
    refuse: tuple[str, str] | None = None
    """(code, message) of the `EngineError` that every request gets."""
    fail_after: int | None = None
    """Tokens after which every choice ends with `finish_reason` `error`."""
    hang_after: int | None = None
    """Tokens after which a choice says nothing more until it is aborted."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """Token ids of one choice, how many of them show as text, and why it ends."""

    ids: list[int]
    visible: int
    finish: str
    stop: str | None = None


class MockEngine:
    """Deterministic deltas for any prompt. Use from one event loop."""

    def __init__(self, config: MockConfig | None = None) -> None:
        self.config = config or MockConfig()
        self.active = 0
        """Generations now running."""
        self.aborted = 0
        """Generations closed before their end."""
        self.requests: list[Generate] = []
        """Everything asked for, oldest first."""
        self._info = ModelInfo(
            self.config.name,
            self.config.context_length,
            VOCAB,
            self.config.cache_tokens,
            self.config.page_size,
        )
        self._text = MockText()
        self._observers: list[Callable[[Sequence[Event]], None]] = []
        self._prompts: list[tuple[str, tuple[int, ...]]] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    @property
    def model(self) -> ModelInfo:
        return self._info

    @property
    def text(self) -> MockText:
        return self._text

    def stats(self) -> EngineStats:
        cached = sum(len(prompt) for _, prompt in self._prompts)
        return EngineStats(self.active, 0, min(1.0, cached / self.config.cache_tokens), cached)

    def subscribe(self, observer: Callable[[Sequence[Event]], None]) -> None:
        self._observers.append(observer)

    async def generate(self, request: Generate) -> AsyncIterator[Delta]:
        """Choices one after the other. Closing early counts as an abort."""
        self._refuse()
        self.requests.append(request)
        rid = len(self.requests)
        self.active += 1
        self._idle.clear()
        ended = False
        try:
            cached = self._remember(request)
            self._emit(self._scheduled(rid, request, cached))
            await asyncio.sleep(self.config.first_delay)
            self._emit(FirstToken(time.monotonic(), rid))
            output = 0
            for index in range(request.n):
                async for delta in self._choice(index, request, cached):
                    output += len(delta.token_ids)
                    yield delta
            ended = True
            self._emit(self._finished(rid, request, cached, output, FinishReason.STOP))
        finally:
            self.active -= 1
            if not ended:
                self.aborted += 1
                self._emit(self._finished(rid, request, 0, 0, FinishReason.ABORT))
            if not self.active:
                self._idle.set()

    async def drain(self) -> None:
        self._draining = True
        await self._idle.wait()

    async def close(self) -> None:
        self._draining = True

    def _refuse(self) -> None:
        if self._draining:
            raise EngineError("draining", "the engine is shutting down: retry on another one")
        if self.config.refuse is not None:
            raise EngineError(*self.config.refuse)

    def _remember(self, request: Generate) -> int:
        prompt = tuple(request.prompt_ids)
        shared = [_shared(prompt, known) for salt, known in self._prompts if salt == request.salt]
        self._prompts = [*self._prompts[-REMEMBERED + 1 :], (request.salt, prompt)]
        return min(max(shared, default=0), len(prompt) - 1)

    async def _choice(self, index: int, request: Generate, cached: int) -> AsyncIterator[Delta]:
        params = request.sampling
        answer = self._answer(request, index)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for count, token in enumerate(answer.ids, 1):
            await asyncio.sleep(self.config.token_delay)
            last = count == len(answer.ids)
            visible = bytes([token]) if token < 256 and count <= answer.visible else b""
            text = decoder.decode(visible, final=last)
            usage = Usage(len(request.prompt_ids), count, cached)
            logprobs = (_logprob(token, params.logprobs),) if params.logprobs is not None else ()
            if self.config.fail_after == count:
                yield Delta(index, "", (token,), (), "error", None, usage, "the mock was told to fail")
                return
            if self.config.hang_after == count:
                yield Delta(index, text, (token,), logprobs)
                await asyncio.Event().wait()
            if last:
                yield Delta(index, text, (token,), logprobs, answer.finish, answer.stop, usage)
            else:
                yield Delta(index, text, (token,), logprobs)

    def _answer(self, request: Generate, index: int) -> _Answer:
        """An echo of the last user line, ended by EOS, a stop string or `max_tokens`; repeated where it must be longer."""
        prompt = self._text.decode(request.prompt_ids)
        line = prompt.rpartition(USER)[2].partition("\n" + ASSISTANT)[0].strip()
        params = request.sampling
        wanted = params.max_tokens if params.ignore_eos else params.min_tokens
        data = f"echo{index or ''}: {line}".encode()
        while len(data) < wanted:
            data += f" {line}".encode()
        found = [(data.find(stop.encode()), stop) for stop in params.stop if stop.encode() in data]
        if found:
            at, stop = min(found)
            end = at + len(stop.encode())
            if end <= params.max_tokens:
                return _Answer(list(data[:end]), end if params.include_stop_str else at, "stop", stop)
        ids = list(data) if params.ignore_eos else [*data, EOS]
        if len(ids) > params.max_tokens or params.ignore_eos:
            ids = ids[: params.max_tokens]
            return _Answer(ids, len(ids), "length")
        return _Answer(ids, len(ids), "stop")

    def _emit(self, event: Event) -> None:
        for observer in self._observers:
            observer([event])

    def _scheduled(self, rid: int, request: Generate, cached: int) -> Scheduled:
        length = len(request.prompt_ids)
        losses = ((Loss.LAST_TOKEN, 1),) if cached == length - 1 else ()
        matched = cached + len(losses)
        return Scheduled(time.monotonic(), rid, length, matched, cached, 0, matched - cached, losses, False)

    def _finished(
        self, rid: int, request: Generate, cached: int, output: int, reason: FinishReason
    ) -> Finished:
        return Finished(time.monotonic(), rid, reason, len(request.prompt_ids), output, cached, 0)


def _logprob(token: int, top: int) -> TokenLogprob:
    """Made-up but well-formed log-probabilities: the sampled token first, then its neighbours."""
    ranked = tuple(
        (t, *_piece(t), -0.1 * (rank + 1)) for rank, t in enumerate((token + i) % VOCAB for i in range(top))
    )
    return TokenLogprob(token, *_piece(token), -0.1, ranked)


def _piece(token: int) -> tuple[str, bytes]:
    data = bytes([token]) if token < 256 else b""
    return data.decode("utf-8", "replace"), data


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
