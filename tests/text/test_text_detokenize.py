"""Deltas joined are the full decode, whatever the ids and the grouping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belady.text.detokenize import Detokenizer
from belady.text.gguf_tokenizer import load_gguf_tokenizer
from belady.text.tokenizer import Tokenizer


def byte_tokenizer(space_prefix: bool) -> Tokenizer:
    """A SentencePiece vocabulary of all bytes, some whole words and one control token."""
    tokens = [
        "<unk>",
        "<s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "\u2581",
        "\u2581a",
        "\u00e9",
        "\u2581\U0001f600",
    ]
    return load_gguf_tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [2, 3, *[6] * 256, 1, 1, 1, 1],
            "tokenizer.ggml.scores": [float(-n) for n in range(len(tokens))],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.add_space_prefix": space_prefix,
        }
    )


PLAIN, PREFIXED = byte_tokenizer(False), byte_tokenizer(True)
IDS = st.lists(
    st.one_of(st.integers(0, 265), st.integers(0xC2 + 2, 0xF4 + 2), st.integers(0x80 + 2, 0xBF + 2))
)


@pytest.mark.parametrize("tokenizer", [PLAIN, PREFIXED])
@given(ids=IDS, sizes=st.lists(st.integers(0, 4)), skip=st.booleans(), at_start=st.booleans())
def test_deltas_join_to_full_decode(
    tokenizer: Tokenizer, ids: list[int], sizes: list[int], skip: bool, at_start: bool
) -> None:
    detokenizer, out, at = Detokenizer(tokenizer, skip_special=skip, at_start=at_start), "", 0
    for size in sizes:
        out += detokenizer.feed(ids[at : at + size])
        at += size
    out += detokenizer.feed(ids[at:]) + detokenizer.flush()
    assert out == tokenizer.decode(ids, skip_special=skip, at_start=at_start)


@given(text=st.text(min_size=1))
def test_valid_text_never_shows_a_broken_character(text: str) -> None:
    detokenizer = Detokenizer(PLAIN)
    out = ""
    for byte in text.encode():
        delta = detokenizer.feed([byte + 2])
        out += delta
        assert text.startswith(out)
    assert out == text and detokenizer.flush() == ""


def test_unfinished_character_is_flushed_as_replacement() -> None:
    detokenizer = Detokenizer(PLAIN)
    assert detokenizer.feed([0xE2 + 2, 0x82 + 2]) == ""
    assert detokenizer.flush() == "\ufffd"
