"""`/tokenize` and `/detokenize`, in the shapes of vLLM."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from belady.api import body
from belady.api.context import context
from belady.api.errors import invalid, json_response
from belady.api.models import check_model
from belady.api.prompts import Message, encode, render_and_encode, template_messages, template_variables


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, object]] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    chat_template_kwargs: dict[str, object] | None = None


class DetokenizeBody(msgspec.Struct, kw_only=True):
    model: str | None = None
    tokens: list[int]


TOKENIZE = msgspec.json.Decoder(TokenizeBody)
DETOKENIZE = msgspec.json.Decoder(DetokenizeBody)


async def tokenize(request: Request) -> Response:
    """Token ids of a text or of rendered messages."""
    owner = context(request)
    fields = body.decode(TOKENIZE, await body.read(request, owner.config.max_body_bytes))
    check_model(owner, fields.model)
    text = owner.client.text
    if (fields.prompt is None) == (fields.messages is None):
        raise invalid("give either `prompt` or `messages`", "prompt")
    if fields.messages is not None:
        tokens = await render_and_encode(
            owner,
            template_messages(fields.messages),
            tools=fields.tools,
            add_generation_prompt=fields.add_generation_prompt,
            variables=template_variables(fields.chat_template_kwargs),
        )
    else:
        prompt, special = fields.prompt or "", fields.add_special_tokens
        tokens = await owner.in_thread(lambda: encode(text, prompt, "prompt", add_special=special))
    strings = None
    if fields.return_token_strs:
        strings = await owner.in_thread(
            lambda: [text.decode([token], skip_special=False) for token in tokens]
        )
    return json_response(
        {
            "count": len(tokens),
            "max_model_len": owner.client.model.context_length,
            "tokens": tokens,
            "token_strs": strings,
        }
    )


async def detokenize(request: Request) -> Response:
    """The text of token ids, special tokens included."""
    owner = context(request)
    fields = body.decode(DETOKENIZE, await body.read(request, owner.config.max_body_bytes))
    check_model(owner, fields.model)
    vocab = owner.client.model.vocab_size
    for token in fields.tokens:
        if not 0 <= token < vocab:
            raise invalid(f"`tokens`: {token} is not a token id of this model (0 to {vocab - 1})", "tokens")
    text = owner.client.text
    prompt = await owner.in_thread(lambda: text.decode(fields.tokens, skip_special=False))
    return json_response({"prompt": prompt})
