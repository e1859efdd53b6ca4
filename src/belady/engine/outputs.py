"""From tokens to what clients read: detokenised deltas with stop strings cut, pushed to asyncio queues.

Runs on the engine thread and hands over to each event loop once per turn, whatever the number of tokens. Knows no plans
beyond their row order, and nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from belady.core.client import Delta, EngineError, Sampling, TokenLogprob, Usage
from belady.core.events import Event, Finished, FinishReason, Refused
from belady.core.facts import Stop
from belady.core.plan import StepPlan
from belady.engine.executor import Progress, RowLogprobs
from belady.text.detokenize import Detokenizer
from belady.text.stop import StopMatcher
from belady.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

Item = Delta | EngineError
"""What a queue carries. An error ends the whole request."""


@dataclass(frozen=True, slots=True)
class Channel:
    """Where a request's deltas go; `queue` is touched only on `loop`."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)


class Choice:
    """Text state of one choice of a request."""

    def __init__(self, channel: Channel, index: int, sampling: Sampling, tokenizer: Tokenizer) -> None:
        self.channel = channel
        self.count = 0
        """Tokens so far."""
        self.stopped = False
        """Ended by a stop; tokens that still come count for nothing."""
        self.failure = ""
        self._index = index
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(sampling.stop_token_ids)
        self._include_stop = sampling.include_stop_str
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(sampling.stop) if sampling.stop else None
        self._min_tokens = sampling.min_tokens
        self._stop_reason: str | int | None = None

    def push(self, token: int, logprobs: RowLogprobs | None, ends: bool) -> Delta:
        """Take one token. `ends`: the executor saw that it is a stop id, which has no text of its own."""
        self.count += 1
        text = "" if ends else self._text(self._detokenizer.feed((token,)))
        if ends:
            self.stopped = True
            if token in self._stop_ids:
                self._stop_reason = token
        scored = () if logprobs is None else (self._logprob(token, logprobs),)
        return Delta(self._index, text, (token,), scored)

    def end(self, event: Finished) -> Delta:
        """The last delta, with what was held back and the token counts."""
        text = ""
        if self._matcher is None:
            text = self._detokenizer.flush()
        elif self._matcher.match is None:
            text = self._text(self._detokenizer.flush())
            text += self._matcher.flush()
        usage = Usage(event.prompt_tokens, event.output_tokens, event.cached_tokens)
        reason = event.reason.value
        detail = (
            self.failure or event.detail if event.reason in (FinishReason.ERROR, FinishReason.ABORT) else ""
        )
        return Delta(self._index, text, (), (), reason, self._stop_reason, usage, detail)

    def _text(self, delta: str) -> str:
        matcher = self._matcher
        if matcher is None:
            return delta
        if self.count < self._min_tokens:
            # Stop strings count only once the output is long enough.
            return delta
        out = matcher.feed(delta)
        if matcher.match is not None and not self.stopped:
            self.stopped = True
            self._stop_reason = matcher.match.stop
            if self._include_stop:
                out += matcher.match.stop
        return out

    def _logprob(self, token: int, row: RowLogprobs) -> TokenLogprob:
        top = tuple(
            (i, *self._piece(i), value) for i, value in zip(row.top_ids, row.top_logprobs, strict=True)
        )
        return TokenLogprob(token, *self._piece(token), row.logprob, top)

    def _piece(self, token: int) -> tuple[str, bytes]:
        data = self._tokenizer.token_bytes(token)
        return data.decode("utf-8", "replace"), data


class Outputs:
    """The loop's sink: choices by rid. `open` and `close` may be called from any thread."""

    def __init__(self) -> None:
        self._open: dict[int, Choice] = {}
        self._ready: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Queue[Item], Item]]] = {}
        self._observers: list[Callable[[Sequence[Event]], None]] = []
        self.on_idle: Callable[[], None] | None = None
        """Called on the engine thread when the last open choice ended."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self, rid: int, choice: Choice) -> None:
        """Expect tokens of `rid`."""
        self._open[rid] = choice

    def forget(self, rid: int) -> bool:
        """Its client went away: nothing more is delivered. False when it had ended already."""
        choice = self._open.get(rid)
        if choice is None:
            return False
        choice.stopped = True
        return True

    def subscribe(self, observer: Callable[[Sequence[Event]], None]) -> None:
        self._observers.append(observer)

    # -- sink, on the engine thread -----------------------------------------------------------------------------

    def on_progress(self, plan: StepPlan, progress: Progress) -> list[Stop]:
        if progress.tokens is None:
            return []
        ends = {stop.rid: stop.reason for stop in progress.stops}
        late: list[Stop] = []
        for rid, token in zip(plan.sampled, progress.tokens, strict=True):
            choice = self._open.get(rid)
            reason = ends.get(rid)
            if choice is None or choice.stopped or reason == "error":
                continue
            delta = choice.push(token, progress.logprobs.get(rid), reason is not None)
            self._send(choice, delta)
            if choice.stopped and reason is None:
                late.append(Stop(rid, choice.count, "stop"))
        return late

    def on_failure(self, rids: Sequence[int], error: BaseException | None) -> None:
        detail = (
            f"the model's computation failed ({type(error).__name__}: {error})"
            if error is not None
            else "the model's logits for this request are not numbers"
        )
        for rid in rids:
            choice = self._open.get(rid)
            if choice is not None:
                choice.stopped = True
                choice.failure = detail

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Finished):
                choice = self._open.pop(event.rid, None)
                if choice is not None:
                    self._send(choice, choice.end(event))
            elif isinstance(event, Refused):
                choice = self._open.pop(event.rid, None)
                if choice is not None:
                    code = "cache_too_small" if event.reason == "too_long" else "refused"
                    self._send(choice, EngineError(code, event.detail))
        for observer in self._observers:
            try:
                observer(events)
            except Exception:
                _log.exception("an observer of engine events raised; it should not")
        if not self._open and self.on_idle is not None:
            self.on_idle()

    def fail_all(self, error: EngineError) -> None:
        """The engine itself ended: tell everyone."""
        while self._open:
            _, choice = self._open.popitem()
            self._send(choice, error)
        self.flush()
        if self.on_idle is not None:
            self.on_idle()

    def flush(self) -> None:
        """One call per event loop for all that was gathered."""
        if not self._ready:
            return
        ready, self._ready = self._ready, {}
        for loop, items in ready.items():
            try:
                loop.call_soon_threadsafe(_deliver, items)
            except RuntimeError:
                _log.debug("an event loop closed before its last deltas were delivered")

    def _send(self, choice: Choice, item: Item) -> None:
        channel = choice.channel
        self._ready.setdefault(channel.loop, []).append((channel.queue, item))


def _deliver(items: Sequence[tuple[asyncio.Queue[Item], Item]]) -> None:
    for queue, item in items:
        queue.put_nowait(item)
