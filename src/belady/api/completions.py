"""`/v1/completions`: text or token ids in, text out. The legacy protocol, which load generators speak."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from belady.api import body, identity, sampling
from belady.api.chat import FINGERPRINT, LOWEST_LOGPROB
from belady.api.context import Context, context
from belady.api.errors import unsupported
from belady.api.exchange import Choice
from belady.api.models import check_model
from belady.api.prompts import encode_prompts
from belady.api.respond import respond
from belady.core.client import Delta, Generate, TokenLogprob

DEFAULT_MAX_TOKENS = 16


class CompletionBody(sampling.SamplingFields, kw_only=True):
    """The body of `/v1/completions`. `prompt`: a string, strings, token ids or lists of token ids."""

    prompt: Any
    logprobs: int | None = None
    echo: bool | None = False
    suffix: str | None = None
    add_special_tokens: bool | None = True
    response_format: msgspec.Raw = msgspec.Raw(b"null")


DECODER = msgspec.json.Decoder(CompletionBody)


async def completions(request: Request) -> Response:
    """Handle one completions call."""
    owner = context(request)
    fields = body.decode(DECODER, await body.read(request, owner.config.max_body_bytes))
    model = check_model(owner, fields.model)
    sampling.check_supported(fields)
    _check_supported(fields)
    n = sampling.check_n(fields, owner.config)
    prompts = await encode_prompts(owner, fields.prompt, add_special=fields.add_special_tokens is not False)
    call_id = f"cmpl-{uuid.uuid4().hex}"
    generates = _generates(owner, request, fields, prompts, n, call_id)
    include_usage = bool(fields.stream_options and fields.stream_options.include_usage)
    shape = CompletionShape(call_id, model, len(prompts) * n, include_usage)
    return await respond(
        request, owner, generates, shape, stream=bool(fields.stream), include_usage=include_usage
    )


def _check_supported(fields: CompletionBody) -> None:
    if fields.echo:
        raise unsupported("echo", "`echo` is not supported: join the prompt and the answer yourself")
    if fields.suffix:
        raise unsupported("suffix", "`suffix` is not supported: leave it out")
    if not sampling.is_null(fields.response_format):
        raise unsupported("response_format", "`response_format` is not supported here: leave it out")


def _generates(
    owner: Context,
    request: Request,
    fields: CompletionBody,
    prompts: Sequence[Sequence[int]],
    n: int,
    call_id: str,
) -> list[Generate]:
    model = owner.client.model
    logprobs = None if fields.logprobs is None else sampling.check_top_logprobs("logprobs", fields.logprobs)
    who = identity.identify(request.headers, fields.session_id)
    priority = identity.priority(request.headers, fields.priority)
    made = []
    for slot, prompt in enumerate(prompts):
        tokens = sampling.resolve_max_tokens(
            fields.max_tokens, len(prompt), model, default=DEFAULT_MAX_TOKENS, param="prompt"
        )
        params = sampling.build(
            fields, max_tokens=tokens, logprobs=logprobs, config=owner.config, model=model
        )
        made.append(
            Generate(
                request_id=f"{call_id}-{slot}",
                prompt_ids=prompt,
                sampling=params,
                n=n,
                priority=priority,
                salt=fields.cache_salt or "",
                program=who.program,
                parent=who.parent,
            )
        )
    return made


class CompletionShape:
    """Text completion objects; chunks are the same object with less in it."""

    def __init__(self, call_id: str, model: str, count: int, include_usage: bool) -> None:
        self._head: dict[str, object] = {
            "id": call_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": FINGERPRINT,
        }
        self._include_usage = include_usage
        self._offsets = [0] * count

    def chunks(self, delta: Delta) -> Iterable[object]:
        if not (delta.text or delta.logprobs or delta.finish_reason is not None):
            return
        logprobs = self._logprobs(delta.index, delta.logprobs)
        choice = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
        }
        if delta.stop_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        chunk: dict[str, object] = {**self._head, "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        yield chunk

    def usage_chunk(self, usage: dict[str, object]) -> object:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: dict[str, object]) -> object:
        made = [
            {
                "index": index,
                "text": "".join(choice.text),
                "logprobs": self._logprobs(index, choice.logprobs),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for index, choice in enumerate(choices)
        ]
        return {**self._head, "choices": made, "usage": usage}

    def _logprobs(self, index: int, tokens: Sequence[TokenLogprob]) -> dict[str, object] | None:
        """The legacy form: parallel lists, with offsets into the choice's own text."""
        if not tokens:
            return None
        offsets = []
        for item in tokens:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(item.token)
        return {
            "tokens": [item.token for item in tokens],
            "token_logprobs": [max(item.logprob, LOWEST_LOGPROB) for item in tokens],
            "top_logprobs": [
                {text: max(logprob, LOWEST_LOGPROB) for _, text, _, logprob in item.top} for item in tokens
            ],
            "text_offset": offsets,
        }
