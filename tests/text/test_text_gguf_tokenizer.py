"""Tokenizers from GGUF metadata: against a direct reading of the algorithms, and on the real default model."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from belady.models.fetch import default_model_path
from belady.models.source import open_model
from belady.text.errors import TokenizerError
from belady.text.gguf_tokenizer import load_gguf_tokenizer
from belady.text.hf_tokenizer import load_hf_tokenizer
from belady.text.pieces import SPACE_MARK, byte_of_char
from belady.text.tokenizer import Tokenizer

MARKS = {" ": SPACE_MARK}


def spm_metadata(pieces: list[str], **more: Any) -> dict[str, Any]:
    """Unknown, start, end, 256 bytes, then `pieces` with falling scores, as SentencePiece numbers them."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    values = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "scores": [0.0] * 259 + [float(-n) for n in range(len(pieces))],
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def spm_oracle(text: str, pieces: list[str], prefix: bool) -> list[int]:
    """Merge the neighbours whose union scores highest, leftmost first, until none is a piece; then bytes."""
    rank = {piece: n for n, piece in enumerate(pieces)}
    symbols = list((SPACE_MARK if prefix and text else "") + text.replace(" ", SPACE_MARK))
    while True:
        joined = [(rank[a + b], n) for n, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in rank]
        if not joined:
            break
        n = min(joined)[1]
        symbols[n : n + 2] = [symbols[n] + symbols[n + 1]]
    out: list[int] = []
    for symbol in symbols:
        out += [259 + rank[symbol]] if symbol in rank else [3 + b for b in symbol.encode()]
    return out


@st.composite
def bpe_like_pieces(draw: st.DrawFn) -> list[str]:
    """A vocabulary as training makes one: letters first, each later piece the union of two earlier ones."""
    letters = ["a", "b", "c", SPACE_MARK]
    pieces: list[str] = []
    for _ in range(draw(st.integers(0, 12))):
        pool = letters + pieces
        piece = draw(st.sampled_from(pool)) + draw(st.sampled_from(pool))
        if piece not in pieces:
            pieces.append(piece)
    return pieces + letters


@settings(max_examples=300)
@given(pieces=bpe_like_pieces(), text=st.text("abc \u00e9", max_size=12), prefix=st.booleans())
def test_sentencepiece_merges_as_the_scores_say(pieces: list[str], text: str, prefix: bool) -> None:
    tokenizer = load_gguf_tokenizer(spm_metadata(pieces, add_space_prefix=prefix))
    assert tokenizer.encode(text) == spm_oracle(text, pieces, prefix)


@given(text=st.text(), prefix=st.booleans())
def test_sentencepiece_round_trip(text: str, prefix: bool) -> None:
    tokenizer = load_gguf_tokenizer(
        spm_metadata([SPACE_MARK, "a", "b", "ab", f"{SPACE_MARK}a"], add_space_prefix=prefix)
    )
    if not set("<>") & set(text) and SPACE_MARK not in text:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentencepiece_specials() -> None:
    metadata = spm_metadata([SPACE_MARK, "a"], add_space_prefix=False)
    tokenizer = load_gguf_tokenizer(metadata, eos_ids=(7,))
    assert tokenizer.encode("a", add_special=True) == [1, 260]
    assert tokenizer.encode("</s>a") == [2, 260]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.special_ids) == (1, (7, 2), {0, 1, 2})
    assert tokenizer.decode([2, 260], skip_special=True) == "a"
    assert tokenizer.token_bytes(3 + 0xE2) == b"\xe2" and tokenizer.token_bytes(10**6) == b""


def bpe_metadata(pre: str | None) -> dict[str, Any]:
    alphabet = list(byte_of_char())
    values: dict[str, Any] = {
        "model": "gpt2",
        "tokens": [*alphabet, "\u0120a", "12", "123", "\u0120123", "<|end|>"],
        "token_type": [1] * 260 + [3],
        "merges": ["\u0120 a", "1 2", "12 3", "\u0120 123"],
        "eos_token_id": 260,
    }
    if pre is not None:
        values["pre"] = pre
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        (None, ["\u0120a", "\u0120123", "4", "<|end|>"]),
        ("gpt-2", ["\u0120a", "\u0120123", "4", "<|end|>"]),
        ("smollm", ["\u0120a", "\u0120", "1", "2", "3", "4", "<|end|>"]),
        ("qwen2", ["\u0120a", "\u0120", "1", "2", "3", "4", "<|end|>"]),
        ("llama-bpe", ["\u0120a", "\u0120", "123", "4", "<|end|>"]),
    ],
)
def test_pre_tokenizers_split_digits_each_in_its_way(pre: str | None, expected: list[str]) -> None:
    metadata = bpe_metadata(pre)
    tokens = metadata["tokenizer.ggml.tokens"]
    tokenizer = load_gguf_tokenizer(metadata)
    assert [tokens[i] for i in tokenizer.encode(" a 1234<|end|>")] == expected


@given(text=st.text(), pre=st.sampled_from(["default", "smollm", "llama-bpe"]))
def test_byte_level_round_trip(text: str, pre: str) -> None:
    tokenizer = load_gguf_tokenizer(bpe_metadata(pre))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "rwkv"}, "supported: gpt2"),
        ({"model": None}, "supported: gpt2"),
        ({"pre": "mystery"}, "pre-tokenizer 'mystery' is not supported; supported: .*llama-bpe"),
        ({"tokens": None}, "has no tokenizer"),
        ({"tokens": [1, 2]}, "has no tokenizer"),
        ({"merges": None}, "merges"),
        ({"merges": ["a b c"]}, "not a pair"),
        ({"merges": ["nope never"]}, "malformed"),
        ({"token_type": [1]}, "does not fit"),
        ({"eos_token_id": 10**6}, "not an id"),
        ({"eos_token_id": "x"}, "not an id"),
    ],
)
def test_malformed_metadata_is_one_error(change: dict[str, Any], message: str) -> None:
    metadata = bpe_metadata("gpt-2") | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(TokenizerError, match=message):
        load_gguf_tokenizer(metadata)


def test_encoding_lets_other_threads_run() -> None:
    tokenizer = load_gguf_tokenizer(bpe_metadata("gpt-2"))
    text = "ab ba " * 100_000
    worker = threading.Thread(target=tokenizer.encode, args=(text,))
    worker.start()
    turns = 0
    while worker.is_alive():
        time.sleep(0.001)
        turns += 1
    # With the lock held throughout, this loop would get one turn or two.
    assert turns > 10


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(TokenizerError, match="lone surrogate"):
        load_gguf_tokenizer(bpe_metadata("gpt-2")).encode("a\ud800")


def test_hf_folder_equals_gguf(tmp_path: Path) -> None:
    """The same byte-level vocabulary, once as tokenizer.json."""
    metadata = bpe_metadata("gpt-2")
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({t: n for n, t in enumerate(tokens)}, merges))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken("<|end|>", normalized=False)])
    backend.save(str(tmp_path / "tokenizer.json"))
    hf, gguf = (
        load_hf_tokenizer(tmp_path, {"eos_token": {"content": "<|end|>"}}),
        load_gguf_tokenizer(metadata),
    )
    text = " a 1234 \u00e9<|end|>"
    assert hf.encode(text) == gguf.encode(text)
    assert [hf.token_bytes(i) for i in range(hf.vocab_size)] == [
        gguf.token_bytes(i) for i in range(gguf.vocab_size)
    ]
    assert (hf.eos_ids, hf.special_ids) == (gguf.eos_ids, gguf.special_ids)
    assert hf.decode(hf.encode(text)) == backend.decode(hf.encode(text), skip_special_tokens=False)


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", '{"model": {"type": "BPE"}}', json.dumps({"decoder": 7})]
)
def test_hf_malformed_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_hf_tokenizer(tmp_path, {})


def test_hf_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        load_hf_tokenizer(tmp_path, {})


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    if default_model_path() is None:
        pytest.skip("the default model is not in the cache; run `belady fetch`")
    with open_model() as source:
        return source.tokenizer


@pytest.mark.model
@settings(max_examples=200)
@given(text=st.one_of(st.text(), st.text(" \n\tab1'\u00e9\U0001f600<|im_end|>")))
def test_default_model_round_trip(real: Tokenizer, text: str) -> None:
    known = {piece for piece in map(real.token_bytes, range(real.vocab_size)) if len(piece) == 1}
    missing = {b for b in range(256) if bytes([b]) not in known}
    assert len(missing) < 32, "this vocabulary lacks a few bytes of rare scripts only"
    kept = "".join(char for char in text if not missing & set(char.encode()))
    ids = real.encode(kept)
    assert real.decode(ids) == kept
    assert b"".join(map(real.token_bytes, ids)) == kept.encode()


@pytest.mark.model
def test_default_model_knows_its_template(real: Tokenizer) -> None:
    with open_model() as source:
        assert source.chat_template is not None
        text = source.chat_template.render(
            [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
        )
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    assert real.encode(text).count(1) == 3 and real.encode(text).count(2) == 2
    assert 2 in real.eos_ids


@pytest.mark.model
def test_default_model_agrees_with_transformers(real: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    path = default_model_path()
    assert path is not None
    other = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    for text in [
        "The quick brown fox, it's 3.14159 or 2024!",
        "  indented\n\n\tdef f(x): return x**2  \n",
        "na\u00efve \u65e5\u672c\u8a9e \U0001f600 <|im_start|>user\nhi<|im_end|>",
    ]:
        assert real.encode(text) == other.encode(text, add_special_tokens=False), text
