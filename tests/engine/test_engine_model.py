"""The engine on real (tiny, random) models: exactness of every option, streams, aborts, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tiny_models import CONTEXT, EOS, VOCAB, close, gather, generate, one, open_engine, run

from belady.core.client import EngineError, Generate, Sampling
from belady.core.events import Event, Finished, FinishReason, Preempted, Scheduled

SYSTEM = [(7 * i) % 250 for i in range(70)]
PROMPTS = [
    [*SYSTEM, 1, 2, 3],
    [*SYSTEM[:33], 9],
    [*SYSTEM, 1, 2, 3, 4, 5],
    [5],
    [*SYSTEM[:64]],
    [200, 100, *SYSTEM[:40]],
]


async def answers(folder: Path, *, together: bool, **config: Any) -> list[tuple[int, ...]]:
    engine = open_engine(folder, **config)
    if together:
        got = await asyncio.gather(*(one(engine, p) for p in PROMPTS))
    else:
        got = [await one(engine, p) for p in PROMPTS]
    await close(engine)
    assert all(len(a.ids) == 24 and a.last.finish_reason == "length" for a in got)
    return [a.ids for a in got]


@pytest.fixture(scope="module", params=["llama", "gemma"])
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[tuple[int, ...]]:
    """No cache, no overlap, one at a time, whole prompts: the reference."""
    return run(answers(folder, together=False, prefix_cache=False, overlap=False, max_repeat=1))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"prefix_cache": False},
        {"overlap": False},
        {"max_repeat": 1},
        {"step_tokens": 7, "max_running": 6},
        {"step_tokens": 64, "max_running": 3},
        {"page_size": 1},
        {"page_size": 64},
        {"page_size": 4, "step_tokens": 7, "max_running": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_greedy_is_exact(
    folder: Path, plain: list[tuple[int, ...]], config: dict[str, Any], together: bool
) -> None:
    assert run(answers(folder, together=together, **config)) == plain


def test_same_as_transformers(llama: Path) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    ours = run(answers(llama, together=True))
    for prompt, ids in zip(PROMPTS, ours, strict=True):
        tokens = torch.tensor([prompt])
        out = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert tuple(out[0, len(prompt) :].tolist()) == ids


def test_preemption_is_exact(folder: Path, plain: list[tuple[int, ...]]) -> None:
    """A pool too small for all: requests give way and go on, with the same text."""

    async def go() -> tuple[list[tuple[int, ...]], list[Event]]:
        engine = open_engine(
            folder, page_size=4, step_tokens=16, max_running=6, cache_bytes=TIGHT[folder.name[:4]]
        )
        events: list[Event] = []
        engine.subscribe(events.extend)
        got = await asyncio.gather(*(one(engine, p) for p in PROMPTS))
        await close(engine)
        return [a.ids for a in got], events

    ids, events = run(go())
    assert ids == plain
    assert any(isinstance(e, Preempted) for e in events)
    assert any(isinstance(e, Scheduled) and e.resumed for e in events)


TIGHT = {"llam": 48_000, "gemm": 110_000}
"""Bytes: enough for the longest request, not for all six."""


def test_prefix_is_reused_and_salt_separates(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        first = await one(engine, PROMPTS[0])
        again = await one(engine, PROMPTS[0])
        other = await one(engine, PROMPTS[0], salt="secret")
        assert first.last.usage is not None and first.last.usage.cached_tokens == 0
        assert again.last.usage is not None and again.last.usage.cached_tokens == len(PROMPTS[0]) - 1
        assert other.last.usage is not None and other.last.usage.cached_tokens == 0
        assert first.ids == again.ids == other.ids
        await close(engine)

    run(go())


def test_abort_frees_everything(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama, prefix_cache=False)
        events: list[Event] = []
        engine.subscribe(events.extend)
        sampling = Sampling(max_tokens=180, temperature=0.0, ignore_eos=True)
        streams = [
            engine.generate(Generate(request_id="r", prompt_ids=p, sampling=sampling)) for p in PROMPTS
        ]
        for stream in streams:
            await anext(stream)
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        await engine.drain()
        ended = [e for e in events if isinstance(e, Finished)]
        assert [e.reason for e in ended] == [FinishReason.ABORT] * len(PROMPTS)
        assert all(e.output_tokens < 180 for e in ended)
        await close(engine)
        assert engine.used_pages == (0,)

    run(go())


def test_cancelled_task_aborts(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama, prefix_cache=False)
        task = asyncio.create_task(generate(engine, PROMPTS[0], n=3, max_tokens=180))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.drain()
        await close(engine)
        assert engine.used_pages == (0,)

    run(go())


def test_n_choices(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        greedy = await generate(engine, PROMPTS[0], n=3)
        assert len({a.ids for a in greedy}) == 1
        sampled = await generate(engine, PROMPTS[0], n=3, temperature=1.0, seed=4)
        assert len({a.ids for a in sampled}) == 3
        single = await one(engine, PROMPTS[0], temperature=1.0, seed=4)
        assert single.ids == sampled[0].ids
        await close(engine)

    run(go())


def test_seed_reproduces_whatever_the_batch(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        options: dict[str, Any] = {"temperature": 1.2, "top_p": 0.95, "top_k": 40, "seed": 11}
        alone = await one(engine, PROMPTS[1], **options)
        crowd = await asyncio.gather(
            *(one(engine, p, temperature=1.0) for p in PROMPTS), one(engine, PROMPTS[1], **options)
        )
        assert crowd[-1].ids == alone.ids
        free = {(await one(engine, PROMPTS[1], temperature=1.2)).ids for _ in range(3)}
        assert len(free) == 3
        await close(engine)

    run(go())


def test_stop_strings_across_tokens(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        # Only letters may be drawn, so that text and tokens correspond.
        bias = dict.fromkeys(range(97, 123), 50.0)
        whole = await one(engine, PROMPTS[1], logit_bias=bias)
        assert len(whole.text) == 24 and whole.text.isalpha()
        stop = whole.text[9:12]
        at = whole.text.index(stop)
        cut = await one(engine, PROMPTS[1], logit_bias=bias, stop=(stop, "never"))
        assert cut.text == whole.text[:at]
        assert (cut.last.finish_reason, cut.last.stop_reason) == ("stop", stop)
        assert cut.ids == whole.ids[: at + 3]
        assert cut.last.usage is not None and cut.last.usage.output_tokens == at + 3
        kept = await one(engine, PROMPTS[1], logit_bias=bias, stop=(stop,), include_stop_str=True)
        assert kept.text == whole.text[: at + 3]
        late = await one(engine, PROMPTS[1], logit_bias=bias, stop=(whole.text[0],), min_tokens=12)
        assert len(late.ids) >= 12
        await close(engine)

    run(go())


def test_stop_ids_and_end_of_sequence(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        whole = await one(engine, PROMPTS[2])
        target = whole.ids[6]
        first = whole.ids.index(target)
        cut = await one(engine, PROMPTS[2], stop_token_ids=(target,))
        assert cut.ids == whole.ids[: first + 1]
        assert (cut.last.finish_reason, cut.last.stop_reason) == ("stop", target)
        eos = {EOS: 100.0}
        ended = await one(engine, PROMPTS[2], logit_bias=eos, ignore_eos=False)
        assert (ended.ids, ended.text) == ((EOS,), "")
        assert (ended.last.finish_reason, ended.last.stop_reason) == ("stop", None)
        longer = await one(engine, PROMPTS[2], logit_bias=eos, ignore_eos=False, min_tokens=5)
        assert len(longer.ids) == 6 and longer.ids[-1] == EOS and EOS not in longer.ids[:5]
        ignored = await one(engine, PROMPTS[2], logit_bias=eos)
        assert ignored.ids == (EOS,) * 24 and ignored.last.finish_reason == "length"
        await close(engine)

    run(go())


def test_logprobs(llama: Path) -> None:
    import torch
    import transformers

    async def go() -> Any:
        engine = open_engine(llama)
        got = await one(engine, PROMPTS[1], logprobs=4)
        none = await one(engine, PROMPTS[1], logprobs=0)
        await close(engine)
        return got, none

    got, none = run(go())
    scored = [lp for d in got.deltas for lp in d.logprobs]
    assert [lp.token_id for lp in scored] == list(got.ids)
    assert all(len(lp.top) == 4 and lp.top[0][0] == lp.token_id for lp in scored)
    assert all(lp.top == () for d in none.deltas for lp in d.logprobs)
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    sequence = torch.tensor([[*PROMPTS[1], *got.ids]])
    with torch.no_grad():
        expected = model(sequence).logits[0, len(PROMPTS[1]) - 1 : -1].log_softmax(-1)
    for row, lp in zip(expected, scored, strict=True):
        values, ids = row.topk(4)
        assert [t[0] for t in lp.top] == ids.tolist()
        assert [t[3] for t in lp.top] == pytest.approx(values.tolist(), abs=1e-3)
        assert lp.logprob == pytest.approx(row[lp.token_id].item(), abs=1e-3)


def test_text_is_what_the_tokenizer_says(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        for seed in range(6):
            got = await one(engine, PROMPTS[1], temperature=1.5, seed=seed)
            assert got.text == engine.text.decode(got.ids)
        await close(engine)

    run(go())


def test_a_stream_arrives_token_by_token(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        got = await one(engine, PROMPTS[0], max_tokens=20)
        assert [len(d.token_ids) for d in got.deltas] == [1] * 20 + [0]
        await close(engine)

    run(go())


REFUSED: list[tuple[dict[str, Any], list[int], str, str]] = [
    ({}, [], "invalid_request", "empty"),
    ({}, [1, VOCAB], "invalid_request", str(VOCAB)),
    ({}, [1, -1], "invalid_request", "-1"),
    ({}, [1] * (CONTEXT + 44), "context_length_exceeded", "300"),
    ({"max_tokens": CONTEXT}, [1, 2], "context_length_exceeded", "254"),
    ({"max_tokens": 0}, [1], "invalid_request", "max_tokens"),
    ({"logit_bias": {VOCAB: 1.0}}, [1], "invalid_request", "logit_bias"),
]


@pytest.mark.parametrize(("fields", "prompt", "code", "word"), REFUSED, ids=lambda v: str(v)[:24])
def test_refusals(llama: Path, fields: dict[str, Any], prompt: list[int], code: str, word: str) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        sampling = Sampling(**{"max_tokens": 4} | fields)
        with pytest.raises(EngineError, match=word) as caught:
            engine.generate(Generate(request_id="r", prompt_ids=prompt, sampling=sampling))
        assert caught.value.code == code
        assert len((await one(engine, [1, 2])).ids) == 24
        await close(engine)

    run(go())


def test_a_small_cache_says_so(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama, cache_bytes=60_000)
        window = engine.model.context_length
        assert window < CONTEXT
        sampling = Sampling(max_tokens=10)
        with pytest.raises(EngineError, match=str(window)) as caught:
            engine.generate(Generate(request_id="r", prompt_ids=[1] * window, sampling=sampling))
        assert caught.value.code == "cache_too_small"
        whole = await one(engine, [1] * (window - 10), max_tokens=10)
        assert whole.last.finish_reason == "length" and len(whole.ids) == 10
        await close(engine)

    run(go())


@pytest.mark.parametrize("size", [10**15, 10**30])
def test_a_cache_beyond_any_memory_is_refused_as_such(llama: Path, size: int) -> None:
    from belady.kernels.errors import CacheMemoryError

    with pytest.raises(CacheMemoryError, match="the KV cache needs"):
        open_engine(llama, cache_bytes=size)


def test_cache_budget_below_anything(llama: Path) -> None:
    with pytest.raises(EngineError, match="at least"):
        open_engine(llama, cache_bytes=100)


def test_drain_refuses_and_waits(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        task = asyncio.create_task(one(engine, PROMPTS[0], max_tokens=60))
        await asyncio.sleep(0.02)
        await engine.drain()
        assert engine.stats().running == 0
        assert len((await task).ids) == 60
        with pytest.raises(EngineError) as caught:
            await one(engine, PROMPTS[0])
        assert caught.value.code == "draining"
        await close(engine)

    run(go())


def test_close_ends_streams(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        sampling = Sampling(max_tokens=180, ignore_eos=True)
        stream = engine.generate(Generate(request_id="r", prompt_ids=[1, 2], sampling=sampling))
        await anext(stream)
        await engine.close()
        with pytest.raises(EngineError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code == "closed"
        await engine.close()

    run(go())


def test_many_event_loops(llama: Path) -> None:
    """Two threads with a loop each share one engine."""
    engine = open_engine(llama)

    def work(prompt: list[int]) -> tuple[int, ...]:
        return run(one(engine, prompt)).ids

    async def go() -> None:
        both = await asyncio.gather(*(asyncio.to_thread(work, p) for p in PROMPTS[:2]))
        alone = [(await one(engine, p)).ids for p in PROMPTS[:2]]
        assert list(both) == alone
        await close(engine)

    run(go())


def test_choices_are_separate_streams(llama: Path) -> None:
    async def go() -> None:
        engine = open_engine(llama)
        sampling = Sampling(max_tokens=12, seed=1, ignore_eos=True)
        request = Generate(request_id="r", prompt_ids=PROMPTS[1], sampling=sampling, n=4)
        deltas = [d async for d in engine.generate(request)]
        assert {d.index for d in deltas} == {0, 1, 2, 3}
        assert all(len(gather(deltas, i).ids) == 12 for i in range(4))
        await close(engine)

    run(go())
