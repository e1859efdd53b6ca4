"""What bytes a vocabulary entry stands for, in the two spellings that vocabularies use. Knows no file format."""

from __future__ import annotations

import functools
import re

_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "\u2581"


@functools.cache
def byte_of_char() -> dict[str, int]:
    """Inverse of the byte alphabet of GPT-2's tokenizer ("Language Models are Unsupervised Multitask Learners",
    2019): printable Latin-1 stands for itself, the other bytes for code points from 256 on, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    rest = [b for b in range(256) if chr(b) not in table]
    return table | {chr(256 + n): b for n, b in enumerate(rest)}


def byte_level_piece(token: str) -> bytes:
    """Bytes of an entry in GPT-2's alphabet; an entry that leaves the alphabet stands for its own text."""
    table = byte_of_char()
    try:
        return bytes([table[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")


def marked_space_piece(token: str) -> bytes:
    """Bytes of a SentencePiece entry: `<0xNN>` is one byte, the mark U+2581 is a space."""
    byte = _BYTE_NAME.fullmatch(token)
    if byte:
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE_MARK, " ").encode("utf-8", "replace")
