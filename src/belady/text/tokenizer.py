"""The tokenizer that everything else sees: text to ids, ids to bytes. Does not know which file it came from.

Decoding is defined on bytes, one fixed byte string per id, joined and read as UTF-8. That makes incremental
detokenising exact by construction, since no id's bytes depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tokenizers

from belady.text.errors import TokenizerError


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """Ids with a meaning beyond their text."""

    ids: frozenset[int]  # all control tokens, left out when `skip_special` is asked for
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()


class Tokenizer:
    """Immutable and safe to share between threads; encoding releases the interpreter lock."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        pieces: Sequence[bytes],
        special: SpecialTokens,
        *,
        space_prefix: bool,
    ) -> None:
        """`pieces[id]` is what an id stands for. `space_prefix`: encoding puts a space before the text,
        so decoding from the start of a text takes one away."""
        self._backend = backend
        self._pieces = pieces
        self._special = special
        self._space_prefix = space_prefix

    @property
    def vocab_size(self) -> int:
        """Ids are below this. The model's embedding may have more rows, as padding."""
        return len(self._pieces)

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special.ids

    @property
    def bos_id(self) -> int | None:
        return self._special.bos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a text or a turn."""
        return self._special.eos_ids

    @property
    def space_prefix(self) -> bool:
        """Whether encoding puts a space before the text."""
        return self._space_prefix

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Ids of `text`. Special tokens written out in it become their ids, as chat templates need.

        `add_special` adds what the model wants around a bare text (usually a start token); leave it off for
        rendered chat templates, which write that themselves. Bytes for which a byte-level vocabulary has
        neither an entry nor a fallback are lost, as with the model's original tokenizer. Raises
        TokenizerError for text that is not valid Unicode.
        """
        try:
            # The library lets go of the interpreter lock in its batch methods only: a long text must not stop everybody.
            return list(self._backend.encode_batch_fast([text], add_special_tokens=add_special)[0].ids)
        except (UnicodeEncodeError, TypeError) as error:  # which one depends on the backend's version
            raise TokenizerError(
                "the text is not valid Unicode (it has a lone surrogate); send valid text"
            ) from error

    def encode_batch(self, texts: Sequence[str], add_special: bool = False) -> list[list[int]]:
        """`encode` of each text."""
        return [self.encode(text, add_special) for text in texts]

    def decode(self, ids: Iterable[int], *, skip_special: bool = False, at_start: bool = True) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD.

        `at_start` says that they begin a text, so the space that encoding put there goes away again; pass
        False for a continuation, such as generated tokens.
        """
        skipped = self._special.ids if skip_special else frozenset()
        raw = b"".join(self.token_bytes(i) for i in ids if i not in skipped)
        text = raw.decode("utf-8", "replace")
        return text[1:] if at_start and self._space_prefix and text.startswith(" ") else text

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that an id adds to the text; empty for ids that the vocabulary does not name."""
        if token_id < 0:
            raise ValueError(f"token ids are not negative, got {token_id}")
        return self._pieces[token_id] if token_id < len(self._pieces) else b""

    def token_id(self, token: str) -> int | None:
        """Id of a token by its name in the vocabulary (`<|im_end|>`), None if there is none."""
        found: int | None = self._backend.token_to_id(token)
        return found
