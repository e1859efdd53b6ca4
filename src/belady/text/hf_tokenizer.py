"""Tokenizer of a Hugging Face folder: tokenizer.json and the special tokens of tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from belady.text.errors import TokenizerError, tokenizer_errors
from belady.text.pieces import byte_level_piece, marked_space_piece
from belady.text.tokenizer import SpecialTokens, Tokenizer


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _TokenizerJson(msgspec.Struct):
    """The parts that the backend does not give back."""

    added_tokens: list[_AddedToken] = []
    decoder: dict[str, Any] | None = None


def load_hf_tokenizer(folder: Path, config: Mapping[str, Any], eos_ids: tuple[int, ...] = ()) -> Tokenizer:
    """Build the tokenizer of `folder`. `config` is the parsed tokenizer_config.json (`{}` if there is none);
    `eos_ids` are the model's own stop ids, to which the tokenizer's end token is added. Raises TokenizerError."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(
            f"{folder}: there is no tokenizer.json; get it with the model, or convert the tokenizer to the fast format"
        )
    with tokenizer_errors(str(path)):
        raw = path.read_bytes()
        parts = msgspec.json.decode(raw, type=_TokenizerJson)
        backend = tokenizers.Tokenizer.from_buffer(raw)
    backend.no_truncation()
    backend.no_padding()
    spell, space_prefix = _spelling(path, parts.decoder)
    pieces = _pieces(backend, parts.added_tokens, spell)
    bos = _token_id(backend, config.get("bos_token"))
    eos = _token_id(backend, config.get("eos_token"))
    special = SpecialTokens(
        ids=frozenset(token.id for token in parts.added_tokens if token.special),
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys((*eos_ids, *(() if eos is None else (eos,))))),
    )
    return Tokenizer(backend, pieces, special, space_prefix=space_prefix)


def _spelling(path: Path, decoder: Mapping[str, Any] | None) -> tuple[Callable[[str], bytes], bool]:
    """How entries spell bytes, and whether decoding drops a leading space, as the file's decoder says."""
    steps = (decoder or {}).get("decoders", [decoder or {}])
    kinds = {step.get("type") for step in steps if isinstance(step, Mapping)}
    if "ByteLevel" in kinds:
        return byte_level_piece, False
    strips = any(step.get("type") == "Strip" and step.get("start", 0) > 0 for step in steps)
    if "ByteFallback" in kinds:
        return marked_space_piece, strips
    if "Metaspace" in kinds:
        scheme = next(s for s in steps if s.get("type") == "Metaspace").get("prepend_scheme", "always")
        return marked_space_piece, strips or scheme != "never"
    raise TokenizerError(
        f"{path}: decoder {sorted(map(str, kinds))} is not supported; supported: ByteLevel, ByteFallback, Metaspace"
    )


def _pieces(
    backend: tokenizers.Tokenizer, added: list[_AddedToken], spell: Callable[[str], bytes]
) -> list[bytes]:
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=False)
    size = 1 + max([*vocabulary.values(), *(token.id for token in added)], default=-1)
    pieces = [b""] * size
    for token, token_id in vocabulary.items():
        pieces[token_id] = spell(token)
    for entry in added:  # these stand for their text as written, the space mark excepted
        marked = spell is marked_space_piece
        pieces[entry.id] = spell(entry.content) if marked else entry.content.encode("utf-8", "replace")
    return pieces


def token_text(value: Any) -> str | None:
    """A special token as tokenizer_config.json writes it: its text, an object with `content`, or null."""
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) and content else None


def _token_id(backend: tokenizers.Tokenizer, value: Any) -> int | None:
    text = token_text(value)
    found: int | None = None if text is None else backend.token_to_id(text)
    return found
