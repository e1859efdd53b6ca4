"""The engine's text port: a tokenizer and a chat template as API servers want them. Thread-safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from belady.text.chat_template import ChatTemplate, require_template
from belady.text.tokenizer import Tokenizer


class ModelText:
    """See `belady.core.client.TextPort`. Raises the errors of `belady.text`."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, model: str) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._model = model

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of `text`; `add_special` off for rendered chat prompts, which contain their special tokens."""
        return self._tokenizer.encode(text, add_special)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return self._tokenizer.decode(ids, skip_special=skip_special)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt text. Templates that ask for the date get the local one."""
        template = require_template(self._template, self._model)
        return template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            strftime_now=lambda spec: datetime.now().strftime(spec),
            **dict(variables or {}),
        )
