"""The torch backend: paging, chunking, batching and copying never change what a network computes."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_rows import FULL, VOCAB, WINDOWED, PagedRows, RandomWeights

from belady.core import plan
from belady.kernels import batch, torch_attention
from belady.kernels.errors import CacheMemoryError, DeviceError
from belady.kernels.program import Attention
from belady.kernels.torch_backend import TorchBackend
from belady.models.config import ModelConfig
from belady.models.registry import build_program

CAPPED = dataclasses.replace(WINDOWED, attn_logit_softcap=0.5)
BIASED = dataclasses.replace(FULL, qkv_bias=True, o_bias=True, mlp_bias=True)
CONFIGS = {"full": FULL, "windowed": WINDOWED, "capped": CAPPED, "biased": BIASED}
TOLERANCE = 1e-4


def _backend(config: ModelConfig, **options) -> TorchBackend:
    program = build_program(config)
    return TorchBackend(program, RandomWeights(program), **options)


BACKENDS = {name: _backend(config) for name, config in CONFIGS.items()}


def _tokens(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, count)]


def _one_shot(name: str, tokens: list[int]) -> np.ndarray:
    logits = PagedRows(BACKENDS[name], page_size=64).run([("a", tokens)])
    assert logits.shape == (len(tokens), VOCAB) and logits.dtype == np.float32
    assert np.isfinite(logits).all() and logits.std() > 0.1, "a reference that says something"
    return logits


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(list(CONFIGS)),
    page_size=st.sampled_from([1, 3, 16]),
    cuts=st.sets(st.integers(1, 39), max_size=39),
    frees=st.booleans(),
)
def test_chunks_and_decode_steps_equal_one_shot(
    name: str, page_size: int, cuts: set[int], frees: bool
) -> None:
    tokens = _tokens(40)
    rows = PagedRows(BACKENDS[name], page_size)
    bounds = [0, *sorted(cuts), 40]
    parts = []
    for begin, end in itertools.pairwise(bounds):
        parts.append(rows.run([("a", tokens[begin:end])]))
        if frees:
            rows.leave_windows("a")
    np.testing.assert_allclose(np.concatenate(parts), _one_shot(name, tokens), atol=TOLERANCE)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("page_size", [1, 16])
def test_batched_rows_equal_single_rows(name: str, page_size: int) -> None:
    """Decode rows of very different lengths, a first chunk and a later chunk, together in one batch."""
    prompts = {"short": 1, "middle": 9, "long": 100, "later": 30}
    sequences = {key: _tokens(n + 12, seed=n) for key, n in prompts.items()}
    rows = PagedRows(BACKENDS[name], page_size, pages=400)
    rows.run([(key, sequences[key][:n]) for key, n in prompts.items()])
    step = [("short", 1), ("later", 12), ("middle", 1), ("long", 1)]
    chunks = [(key, sequences[key][prompts[key] : prompts[key] + n]) for key, n in step]
    logits = rows.run([*chunks, ("new", _tokens(20, seed=7))])
    expected = [_one_shot(name, sequences[key][: prompts[key] + n])[-n:] for key, n in step]
    expected.append(_one_shot(name, _tokens(20, seed=7)))
    np.testing.assert_allclose(logits, np.concatenate(expected), atol=TOLERANCE)


def test_many_decode_rows_in_small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_attention, "_BUCKET_TOKENS", 64)
    lengths = [1, 2, 3, 5, 8, 13, 21, 34, 55, 90]
    rows = PagedRows(BACKENDS["full"], 4, pages=400)
    sequences = [_tokens(n + 1, seed=n) for n in lengths]
    rows.run([(str(n), s[:-1]) for n, s in enumerate(sequences)])
    logits = rows.run([(str(n), s[-1:]) for n, s in enumerate(sequences)])
    expected = np.stack([_one_shot("full", s)[-1] for s in sequences])
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def test_only_sampled_rows_come_back() -> None:
    tokens = _tokens(20)
    last = PagedRows(BACKENDS["full"], 16).run([("a", tokens), ("b", tokens[:5])], sample="last")
    expected = _one_shot("full", tokens)
    np.testing.assert_allclose(last, expected[[19, 4]], atol=TOLERANCE)


def test_a_batch_may_sample_nothing() -> None:
    rows = PagedRows(BACKENDS["full"], 4)
    none = batch.ForwardBatch(
        tokens=np.array([1, 2], np.int32),
        positions=np.array([0, 1], np.int32),
        row_start=np.array([0, 2], np.int32),
        context_len=np.array([2], np.int32),
        block_tables=(np.array([[3]], np.int32),),
        sample_rows=np.array([], np.int32),
    )
    assert rows.backend.forward(none).shape == (0, VOCAB)


@pytest.mark.parametrize("name", ["full", "windowed"])
def test_a_fork_shares_pages_and_diverges(name: str) -> None:
    start, left, right = _tokens(21), _tokens(9, seed=1), _tokens(9, seed=2)
    rows = PagedRows(BACKENDS[name], 8)
    rows.run([("a", start)])
    rows.fork("a", "b")
    for one, other in zip(left, right, strict=True):
        logits = rows.run([("a", [one]), ("b", [other])])
    expected = [_one_shot(name, start + tail)[-1] for tail in (left, right)]
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def test_a_copy_takes_the_named_slots_only() -> None:
    backend = _backend(FULL)
    backend.allocate([4], 8)
    pool = backend._pools[0]
    pool.keys.copy_(torch.arange(pool.keys.numel()).view(pool.keys.shape))
    before = pool.keys.clone()
    backend.copy_pages(0, [1, 2], [2, 3], [5, 8])
    assert torch.equal(pool.keys[:, 2, :, :5], before[:, 1, :, :5])
    assert torch.equal(pool.keys[:, 2, :, 5:], torch.zeros_like(before[:, 2, :, 5:]))
    assert torch.equal(pool.keys[:, 3], pool.keys[:, 2]), "copies happen in order"
    assert torch.equal(pool.keys[:, :2], before[:, :2])


def test_windows_give_pages_back_and_still_compute_the_same() -> None:
    tokens = _tokens(60)
    rows = PagedRows(BACKENDS["windowed"], 2, pages=60)
    logits, freed = [], 0
    for token in tokens:
        logits.append(rows.run([("a", [token])]))
        freed += rows.leave_windows("a")
    assert freed >= 25, "most pages of a short window are behind it"
    np.testing.assert_allclose(np.concatenate(logits), _one_shot("windowed", tokens), atol=TOLERANCE)


def test_scores_are_capped_before_the_mask() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, 5, 8)).astype(np.float32) for heads in (4, 2, 2))
    seen = np.tri(5, dtype=bool)
    op = Attention(out=3, q=0, k=1, v=2, group=0, layer=0, scale=0.4, softcap=0.7)
    bias = torch.zeros(5, 5).masked_fill(~torch.from_numpy(seen), -torch.inf)
    ours = torch_attention._scaled_attention(op, *(torch.from_numpy(x) for x in (q, k, v)), bias)
    scores = 0.7 * np.tanh(0.4 * q @ k.repeat(2, 1).swapaxes(-1, -2) / 0.7)
    weights = np.exp(scores) * seen
    expected = weights / weights.sum(-1, keepdims=True) @ v.repeat(2, 1)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["full", "windowed", "capped"])
@pytest.mark.parametrize("page_size", [1, 8])
def test_what_a_failed_request_left_in_pages_harms_nobody(name: str, page_size: int) -> None:
    start, long = _tokens(21), _tokens(60, seed=1)
    rows = PagedRows(BACKENDS[name], page_size, pages=300)
    for pool in BACKENDS[name]._pools:
        pool.keys.fill_(torch.nan)
        pool.values.fill_(torch.inf)
    rows.run([("a", start), ("long", long)])
    rows.fork("a", "b")
    logits = rows.run([("a", [1]), ("b", [2]), ("long", [3])])
    expected = [_one_shot(name, [*tokens, last])[-1] for tokens, last in ((start, 1), (start, 2), (long, 3))]
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def test_a_missing_page_is_caught() -> None:
    rows = PagedRows(BACKENDS["full"], 2)
    rows.run([("a", _tokens(6))])
    rows.tables["a"][0][1] = batch.NO_PAGE
    with pytest.raises(AssertionError, match="every page"):
        rows.run([("a", [1])])


def test_pools_that_do_not_fit_say_what_to_lower() -> None:
    backend = _backend(FULL)
    page = backend.bytes_per_page(0, 16)
    assert page == 2 * 3 * 2 * 16 * 8 * 4, "keys and values, layers, heads, slots, size, bytes"
    with pytest.raises(CacheMemoryError, match=r"cache\.bytes, --cache-bytes") as caught:
        backend.allocate([1 << 40], 16)
    assert caught.value.wanted == page << 40
    PagedRows(backend, 16).run([("a", [1, 2, 3])])


def test_an_allocator_that_refuses_is_reported_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("belady.kernels.torch_cache.available_bytes", lambda device: None)
    with pytest.raises(CacheMemoryError) as caught:
        _backend(FULL).allocate([1 << 50], 16)
    assert caught.value.available is None


@pytest.mark.parametrize("device", ["nonsense", "meta-physical", "cuda:99"])
def test_an_unusable_device_is_named(device: str) -> None:
    with pytest.raises(DeviceError, match=f"{device}.*Use 'cpu'"):
        _backend(FULL, device=device)


def test_values_share_few_slots() -> None:
    backend = BACKENDS["full"]
    assert backend.slots <= 5 < len(backend.program.ops)


@pytest.mark.parametrize("name", ["full", "windowed"])
def test_bfloat16_is_close(name: str) -> None:
    tokens = _tokens(30)
    rows = PagedRows(_backend(CONFIGS[name], dtype="bfloat16"), 16)
    logits = np.concatenate([rows.run([("a", tokens[:20])]), *(rows.run([("a", [t])]) for t in tokens[20:])])
    expected = _one_shot(name, tokens)
    assert np.abs(logits - expected).mean() < 0.1 * expected.std()


def test_block_tables_and_plans_mean_the_same_by_no_page() -> None:
    assert batch.NO_PAGE == plan.NO_PAGE
