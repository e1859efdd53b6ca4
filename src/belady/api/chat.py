"""`/v1/chat/completions`: the body's fields, and how deltas are written. Tool calls are not parsed from outputs yet."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from belady import __version__
from belady.api import body, identity, sampling
from belady.api.context import Context, context
from belady.api.errors import invalid, unsupported
from belady.api.exchange import Choice
from belady.api.models import check_model
from belady.api.prompts import Message, render_and_encode, template_messages, template_variables
from belady.api.respond import respond
from belady.core.client import Delta, Generate, TokenLogprob

FINGERPRINT = f"belady-{__version__}"
LOWEST_LOGPROB = -9999.0
"""JSON has no minus infinity."""


class ResponseFormat(msgspec.Struct, kw_only=True):
    type: str


class ChatBody(sampling.SamplingFields, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    functions: msgspec.Raw = msgspec.Raw(b"null")
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None
    audio: msgspec.Raw = msgspec.Raw(b"null")
    web_search_options: msgspec.Raw = msgspec.Raw(b"null")
    continue_final_message: bool | None = False
    add_generation_prompt: bool | None = True
    chat_template: msgspec.Raw = msgspec.Raw(b"null")
    chat_template_kwargs: dict[str, object] | None = None
    reasoning_effort: str | None = None


DECODER = msgspec.json.Decoder(ChatBody)


async def chat(request: Request) -> Response:
    """Handle one chat call."""
    owner = context(request)
    fields = body.decode(DECODER, await body.read(request, owner.config.max_body_bytes))
    model = check_model(owner, fields.model)
    sampling.check_supported(fields)
    _check_supported(fields)
    n = sampling.check_n(fields, owner.config)
    messages = template_messages(fields.messages)
    prompt = await render_and_encode(
        owner,
        messages,
        tools=fields.tools,
        add_generation_prompt=fields.add_generation_prompt is not False,
        variables=template_variables(fields.chat_template_kwargs, fields.reasoning_effort),
    )
    generate = _generate(owner, request, fields, prompt, n)
    include_usage = bool(fields.stream_options and fields.stream_options.include_usage)
    shape = ChatShape(generate.request_id, model, n, include_usage, bool(fields.logprobs))
    return await respond(
        request, owner, [generate], shape, stream=bool(fields.stream), include_usage=include_usage
    )


def _check_supported(fields: ChatBody) -> None:
    if fields.tools and fields.tool_choice != "none":
        raise unsupported(
            "tools",
            'tool calls are not parsed from the output yet: send `tool_choice: "none"` to show the tools to the model '
            "and get its plain text, or leave `tools` out",
        )
    if not fields.tools and fields.tool_choice not in (None, "none", "auto"):
        raise invalid("`tool_choice` needs `tools`", "tool_choice")
    if fields.response_format is not None and fields.response_format.type != "text":
        raise unsupported(
            "response_format",
            f'`response_format` {fields.response_format.type[:40]!r} is not supported yet: use "text"',
        )
    if fields.modalities is not None and fields.modalities != ["text"]:
        raise unsupported("modalities", 'only the modality "text" is supported')
    for name, hint in (
        ("functions", "use `tools`"),
        ("audio", "only text is supported"),
        ("web_search_options", "there is no web search here"),
        ("chat_template", "the model's own template is used"),
    ):
        if not sampling.is_null(getattr(fields, name)):
            raise unsupported(name, f"`{name}` is not supported: {hint}; leave it out")
    if fields.continue_final_message:
        raise unsupported(
            "continue_final_message", "continuing the last message is not supported; leave it out"
        )
    if fields.top_logprobs is not None and not fields.logprobs:
        raise invalid("`top_logprobs` needs `logprobs: true`", "top_logprobs")


def _generate(owner: Context, request: Request, fields: ChatBody, prompt: Sequence[int], n: int) -> Generate:
    model = owner.client.model
    newer = fields.max_completion_tokens
    asked, field = (fields.max_tokens, "max_tokens") if newer is None else (newer, "max_completion_tokens")
    max_tokens = sampling.resolve_max_tokens(asked, len(prompt), model, default=None, field=field)
    logprobs = (
        sampling.check_top_logprobs("top_logprobs", fields.top_logprobs or 0) if fields.logprobs else None
    )
    who = identity.identify(request.headers, fields.session_id)
    return Generate(
        request_id=f"chatcmpl-{uuid.uuid4().hex}",
        prompt_ids=prompt,
        sampling=sampling.build(
            fields, max_tokens=max_tokens, logprobs=logprobs, config=owner.config, model=model
        ),
        n=n,
        priority=identity.priority(request.headers, fields.priority),
        salt=fields.cache_salt or "",
        program=who.program,
        parent=who.parent,
    )


class ChatShape:
    """Chat completion objects and chunks."""

    def __init__(self, call_id: str, model: str, n: int, include_usage: bool, logprobs: bool) -> None:
        self._head: dict[str, object] = {
            "id": call_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": FINGERPRINT,
        }
        self._include_usage = include_usage
        self._logprobs = logprobs
        self._begun = [False] * n

    def chunks(self, delta: Delta) -> Iterable[object]:
        if not self._begun[delta.index]:
            self._begun[delta.index] = True
            yield self._chunk(delta.index, {"role": "assistant", "content": ""})
        if delta.text or delta.logprobs:
            logprobs = _logprobs(delta.logprobs) if self._logprobs else None
            yield self._chunk(delta.index, {"content": delta.text}, logprobs=logprobs)
        if delta.finish_reason is not None:
            yield self._chunk(delta.index, {}, finish=delta.finish_reason, stop=delta.stop_reason)

    def usage_chunk(self, usage: dict[str, object]) -> object:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: dict[str, object]) -> object:
        made = [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(choice.text), "refusal": None},
                "logprobs": _logprobs(choice.logprobs) if self._logprobs else None,
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for index, choice in enumerate(choices)
        ]
        return {**self._head, "object": "chat.completion", "choices": made, "usage": usage}

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, object],
        *,
        logprobs: object = None,
        finish: str | None = None,
        stop: str | int | None = None,
    ) -> dict[str, object]:
        choice: dict[str, object] = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish,
        }
        if stop is not None:
            choice["stop_reason"] = stop
        chunk: dict[str, object] = {**self._head, "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, object]:
    content = [
        {
            **_entry(item.token, item.data, item.logprob),
            "top_logprobs": [_entry(text, data, logprob) for _, text, data, logprob in item.top],
        }
        for item in tokens
    ]
    return {"content": content, "refusal": None}


def _entry(token: str, data: bytes, logprob: float) -> dict[str, object]:
    return {"token": token, "logprob": max(logprob, LOWEST_LOGPROB), "bytes": list(data)}
