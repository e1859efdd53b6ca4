"""What a user is told when text can't be turned into tokens or messages into a prompt."""

from __future__ import annotations


class TokenizerError(Exception):
    """A tokenizer can't be built, or can't take a text. The message says what to do."""


class TemplateError(Exception):
    """A chat template is missing, malformed, or refused its messages. The message says what to do."""
