"""Tokenizer from the metadata of a GGUF file: byte-level BPE, or a SentencePiece vocabulary with scores.

Takes the metadata as a mapping and never opens a file. Byte-level vocabularies come with merges but only the
name of their pre-tokenizer, so the splitting rules are written out here per name; an unknown name is
refused, since guessing would give wrong tokens without a sign. SentencePiece vocabularies ("SentencePiece: A
simple and language independent subword tokenizer and detokenizer for Neural Text Processing", 2018) come
with scores only: the pair whose union scores highest merges first, which is BPE with merges ranked by score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors

from belady.text.errors import TokenizerError, tokenizer_errors
from belady.text.pieces import SPACE_MARK, byte_level_piece, marked_space_piece
from belady.text.tokenizer import SpecialTokens, Tokenizer

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_PREFIX = "tokenizer.ggml."

_GPT2 = frozenset(("default", "gpt-2", "gpt2"))
_DIGITS_GPT2 = frozenset(("smollm", "starcoder", "refact", "command-r"))
_LLAMA3 = frozenset(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"))
_QWEN2 = frozenset(("qwen2", "deepseek-r1-qwen", "megrez"))
PRE_TOKENIZERS = tuple(sorted(_GPT2 | _DIGITS_GPT2 | _LLAMA3 | _QWEN2))

# Contractions, words with one leading mark, digits, punctuation with line ends, line ends, spaces.
_MODERN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Vocabulary:
    """The metadata's lists, checked against each other."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        tokens = self.get("tokens")
        if not _is_list_of(tokens, str) or not tokens:
            raise TokenizerError(
                "the file has no tokenizer (`tokenizer.ggml.tokens` is missing or malformed); convert the model anew"
            )
        self.tokens: list[str] = tokens
        self.types: list[int] = self._parallel("token_type", int) or [1] * len(tokens)
        self.scores: list[float] | None = self._parallel("scores", float)

    def get(self, key: str) -> Any:
        return self.metadata.get(_PREFIX + key)

    def _parallel(self, key: str, kind: type) -> Any:
        values = self.get(key)
        if values is None:
            return None
        if not _is_list_of(values, kind) or len(values) != len(self.tokens):
            raise TokenizerError(
                f"`{_PREFIX}{key}` does not fit the {len(self.tokens)} tokens; convert the model anew"
            )
        return values

    def token_id(self, key: str) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < len(self.tokens):
            raise TokenizerError(
                f"`{_PREFIX}{key}` is {value!r}, not an id of the vocabulary; convert the model anew"
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        return value if isinstance(value, bool) else default


def load_gguf_tokenizer(metadata: Mapping[str, Any], eos_ids: tuple[int, ...] = ()) -> Tokenizer:
    """Build the tokenizer that `metadata` describes. `eos_ids` are the model's own stop ids, to which the
    tokenizer's end token is added. Raises TokenizerError for a missing, malformed or unknown tokenizer."""
    vocabulary = _Vocabulary(metadata)
    model = vocabulary.get("model")
    if model not in ("gpt2", "llama"):
        raise TokenizerError(
            f"tokenizer model {model!r} is not supported; supported: gpt2 (byte-level BPE), llama"
        )
    special = _special(vocabulary, eos_ids)
    with tokenizer_errors("the tokenizer"):
        backend = _byte_level(vocabulary) if model == "gpt2" else _sentencepiece(vocabulary)
        _add_atomic_tokens(backend, vocabulary, special)
        _add_bos_eos(backend, vocabulary)
    space_prefix = model == "llama" and vocabulary.flag("add_space_prefix", True)
    return Tokenizer(backend, _pieces(vocabulary, model), special, space_prefix=space_prefix)


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _byte_level(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    merges = vocabulary.get("merges")
    if not _is_list_of(merges, str):
        raise TokenizerError("`tokenizer.ggml.merges` is missing or malformed; convert the model anew")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise TokenizerError(
            "`tokenizer.ggml.merges` has an entry that is not a pair; convert the model anew"
        )
    pre = vocabulary.get("pre") or "default"
    ids = {token: n for n, token in reversed(list(enumerate(vocabulary.tokens)))}
    unknown = next((pair for pair in pairs if not {*pair, "".join(pair)} <= ids.keys()), None)
    if unknown is not None:
        raise TokenizerError(
            f"merge {' '.join(unknown)!r} is malformed: its tokens are not in the vocabulary"
        )
    backend = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=pre in _LLAMA3))
    backend.pre_tokenizer = _pre_tokenizer(pre)
    if pre in _QWEN2:
        backend.normalizer = normalizers.NFC()
    return backend


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre in _GPT2:
        return gpt2
    if pre in _DIGITS_GPT2:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if pre not in _LLAMA3 | _QWEN2:
        raise TokenizerError(
            f"pre-tokenizer {pre!r} is not supported; supported: {', '.join(PRE_TOKENIZERS)}. "
            f"Use the model in Hugging Face format, whose tokenizer.json carries its own rules"
        )
    pattern = _MODERN_SPLIT % (r"\p{N}{1,3}" if pre in _LLAMA3 else r"\p{N}")
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentencepiece(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    if vocabulary.scores is None:
        raise TokenizerError("`tokenizer.ggml.scores` is missing; convert the model anew")
    ids = {token: n for n, token in reversed(list(enumerate(vocabulary.tokens)))}
    unknown = next(
        (t for t, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if kind == _UNKNOWN), None
    )
    model = models.BPE(
        vocab=ids, merges=_merges(vocabulary, ids), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    backend = tokenizers.Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    if vocabulary.flag("add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE_MARK))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _merges(vocabulary: _Vocabulary, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a token out of two others, best score first; of one token, the shorter left part last."""
    assert vocabulary.scores is not None, "checked by the caller"
    ranked: list[tuple[float, int, int, str, str]] = []
    for n, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if kind in (_UNKNOWN, _CONTROL, _BYTE) or ids[token] != n:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-vocabulary.scores[n], n, -cut, left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _special(vocabulary: _Vocabulary, eos_ids: tuple[int, ...]) -> SpecialTokens:
    named = [vocabulary.token_id(f"{name}_token_id") for name in ("bos", "eos", "eot", "eom", "padding")]
    control = {n for n, kind in enumerate(vocabulary.types) if kind in (_CONTROL, _UNKNOWN)}
    eos = [i for i in named[1:4] if i is not None]
    return SpecialTokens(
        ids=frozenset(control | {i for i in named if i is not None}),
        bos_id=named[0],
        eos_ids=tuple(dict.fromkeys((*eos_ids, *eos))),
    )


def _add_atomic_tokens(
    backend: tokenizers.Tokenizer, vocabulary: _Vocabulary, special: SpecialTokens
) -> None:
    """Have control and user-defined tokens recognised whole wherever their text occurs."""
    control, plain = [], []
    for n, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if not token or kind == _UNKNOWN:
            continue
        if n in special.ids:
            control.append(AddedToken(token, special=True, normalized=False))
        elif kind == _USER_DEFINED:
            plain.append(AddedToken(token, special=False, normalized=False))
    backend.add_special_tokens(control)
    backend.add_tokens(plain)


def _add_bos_eos(backend: tokenizers.Tokenizer, vocabulary: _Vocabulary) -> None:
    is_spm = vocabulary.get("model") == "llama"
    wants_bos = vocabulary.flag("add_bos_token", is_spm or vocabulary.get("pre") in _LLAMA3)
    bos = vocabulary.token_id("bos_token_id") if wants_bos else None
    eos = vocabulary.token_id("eos_token_id") if vocabulary.flag("add_eos_token", False) else None
    around = [(vocabulary.tokens[i], i) for i in (bos, eos) if i is not None]
    if not around:
        return
    template = ["$A"]
    if bos is not None:
        template.insert(0, vocabulary.tokens[bos])
    if eos is not None:
        template.append(vocabulary.tokens[eos])
    backend.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=list(dict.fromkeys(around))
    )


def _pieces(vocabulary: _Vocabulary, model: str) -> list[bytes]:
    spell = byte_level_piece if model == "gpt2" else marked_space_piece
    pieces = []
    for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        literal = kind in (_CONTROL, _USER_DEFINED) and model == "gpt2"
        pieces.append(token.encode("utf-8", "replace") if literal else spell(token))
    return pieces
