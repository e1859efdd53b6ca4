"""What a user is told when text can't be turned into tokens or messages into a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TokenizerError(Exception):
    """A tokenizer can't be built, or can't take a text. The message says what to do."""


class TemplateError(Exception):
    """A chat template is missing, malformed, or refused its messages. The message says what to do."""


@contextmanager
def tokenizer_errors(what: str) -> Iterator[None]:
    """Turn whatever the tokenizer library raises within into TokenizerError.

    The library raises bare Exception for a malformed tokenizer, and for some of them panics, which arrives as
    an exception outside Exception.
    """
    try:
        yield
    except (TokenizerError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(
            f"{what} is malformed ({error}); get the model again, or convert it anew"
        ) from error
