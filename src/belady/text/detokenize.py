"""Token ids in, text deltas out, never half a character. Knows nothing of stop strings or requests."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from belady.text.tokenizer import Tokenizer


class Detokenizer:
    """Decodes one growing sequence. The deltas and the flush, joined, equal `Tokenizer.decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, at_start: bool = False) -> None:
        """`at_start`: the ids begin a text, rather than continue a prompt (see `Tokenizer.decode`)."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = at_start and tokenizer.space_prefix

    def feed(self, ids: Iterable[int]) -> str:
        """Text that `ids` complete; may be empty while a character is still in pieces."""
        raw = b"".join(self._tokenizer.token_bytes(i) for i in ids if i not in self._skipped)
        return self._after_first(self._decoder.decode(raw))

    def flush(self) -> str:
        """What an unfinished last character leaves: U+FFFD, or nothing. Ends the sequence."""
        return self._after_first(self._decoder.decode(b"", final=True))

    def _after_first(self, text: str) -> str:
        if not text or not self._drop_space:
            return text
        self._drop_space = False
        return text.removeprefix(" ")
