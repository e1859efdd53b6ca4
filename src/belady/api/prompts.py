"""Prompts from messages, strings or token ids, rendered and tokenised off the event loop.

Knows the text port; knows nothing of sampling or of responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from belady.api.context import Context
from belady.api.errors import invalid, unsupported
from belady.core.client import TextPort
from belady.text.errors import TemplateError, TokenizerError

ROLES = ("system", "developer", "user", "assistant", "tool")
OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "strftime_now"})


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One chat message as sent."""

    role: str
    content: str | list[dict[str, object]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, object]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


def template_messages(messages: Sequence[Message]) -> list[Mapping[str, object]]:
    """Messages as chat templates take them; raises `ApiError` naming the message at fault."""
    if not messages:
        raise invalid("`messages` is empty: send at least one message", "messages")
    return [_template_message(i, message) for i, message in enumerate(messages)]


def _template_message(index: int, message: Message) -> Mapping[str, object]:
    where = f"messages[{index}]"
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        raise invalid(f"`{where}.role` is {message.role[:40]!r}: it must be one of {known}", f"{where}.role")
    made: dict[str, object] = {
        # `developer` is the newer name of `system`; templates of open models know the latter only.
        "role": "system" if message.role == "developer" else message.role,
        "content": _content(where, message),
    }
    for key in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, key)) is not None:
            made[key] = value
    if message.tool_calls:
        made["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    return made


def _content(where: str, message: Message) -> str:
    content = message.content
    if content is None:
        if message.role == "assistant" and (message.tool_calls or message.reasoning_content is not None):
            return ""
        raise invalid(
            f"`{where}.content` is missing: give a string or a list of text parts", f"{where}.content"
        )
    if isinstance(content, str):
        return content
    return "\n".join(_part(f"{where}.content[{i}]", part) for i, part in enumerate(content))


def _part(where: str, part: Mapping[str, object]) -> str:
    kind = part.get("type")
    if kind not in ("text", "input_text", "refusal"):
        raise unsupported(
            f"{where}.type", f"`{where}`: parts of type {kind!r} are not supported; send text parts"
        )
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise invalid(f"`{where}.text` must be a string", f"{where}.text", "invalid_type")
    return text


def _tool_call(call: Mapping[str, object]) -> Mapping[str, object]:
    """Arguments travel as JSON text, but templates iterate over them: hand them over as an object where they are one."""
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = msgspec.json.decode(function["arguments"])
    except (msgspec.DecodeError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


async def render_and_encode(
    owner: Context,
    messages: Sequence[Mapping[str, object]],
    *,
    tools: Sequence[Mapping[str, object]] | None,
    add_generation_prompt: bool,
    variables: Mapping[str, object],
) -> list[int]:
    """Token ids of the rendered conversation; a template that refuses it is the client's 400."""
    text: TextPort = owner.client.text

    def work() -> list[int]:
        try:
            prompt = text.render_chat(
                messages, tools=tools, add_generation_prompt=add_generation_prompt, variables=variables
            )
        except TemplateError as error:
            raise invalid(str(error), "messages", "template_error") from error
        # The template writes the special tokens itself.
        return encode(text, prompt, "messages", add_special=False)

    return await owner.in_thread(work)


def template_variables(
    given: Mapping[str, object] | None, reasoning_effort: str | None = None
) -> dict[str, object]:
    """`chat_template_kwargs` as variables; names that the server itself sets are refused."""
    variables = dict(given or {})
    for name in OWN_VARIABLES.intersection(variables):
        raise invalid(
            f"`chat_template_kwargs.{name}` is set by the server: leave it out", "chat_template_kwargs"
        )
    if reasoning_effort is not None:
        variables.setdefault("reasoning_effort", reasoning_effort)
    return variables


def encode(text: TextPort, prompt: str, where: str, *, add_special: bool) -> list[int]:
    """Token ids; a text that the tokenizer cannot take is a 400 on the field `where`. Slow: run it in a thread."""
    try:
        return text.encode(prompt, add_special=add_special)
    except TokenizerError as error:
        raise invalid(f"`{where}` cannot be tokenised: {error}", where, "tokenizer_error") from error


async def encode_prompts(owner: Context, prompt: object, *, add_special: bool = True) -> list[list[int]]:
    """Token ids per prompt, from a string, a list of strings, token ids or a list of token-id lists."""
    prompts = _split(prompt, owner.config.max_prompts)
    vocab = owner.client.model.vocab_size
    texts = [item for item in prompts if isinstance(item, str)]
    text = owner.client.text
    encoded = await owner.in_thread(
        lambda: [encode(text, item, "prompt", add_special=add_special) for item in texts]
    )
    following = iter(encoded)
    many = len(prompts) > 1
    ids = [
        next(following)
        if isinstance(item, str)
        else _token_ids(item, vocab, f"prompt[{i}]" if many else "prompt")
        for i, item in enumerate(prompts)
    ]
    for i, item in enumerate(ids):
        if not item:
            where = f"prompt[{i}]" if many else "prompt"
            raise invalid(f"`{where}` is empty: it must have at least one token", where)
    return ids


def _split(prompt: object, limit: int) -> list[object]:
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list):
        raise invalid(
            "`prompt` must be a string, a list of strings, token ids or a list of those",
            "prompt",
            "invalid_type",
        )
    if not prompt:
        raise invalid("`prompt` is empty: it must have at least one token", "prompt")
    if isinstance(prompt[0], int):
        return [prompt]
    if len(prompt) > limit:
        raise invalid(
            f"`prompt` has {len(prompt)} prompts: at most {limit} are allowed on this server", "prompt"
        )
    return prompt


def _token_ids(item: object, vocab: int, where: str) -> list[int]:
    if not isinstance(item, list):
        raise invalid(f"`{where}` must be a string or a list of token ids", where, "invalid_type")
    for token in item:
        if type(token) is not int or not 0 <= token < vocab:
            raise invalid(
                f"`{where}`: {str(token)[:20]} is not a token id of this model (0 to {vocab - 1})", where
            )
    return item
