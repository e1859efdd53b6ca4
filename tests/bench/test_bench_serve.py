"""The serving experiment: rates from recorded times, both sides on the default model, and no baseline said so."""

from __future__ import annotations

import pytest

from belady.bench import serve
from belady.bench.experiment import BenchError
from belady.bench.serve import Answer, decode_rate, steps_rate

pytest.importorskip("torch")

TINY = serve.Params(
    threads=1,
    prefill_tokens=20,
    decode_prompt_tokens=8,
    decode_tokens=4,
    batches=(1, 2),
    long_tokens=70,
    changed_tokens=10,
    repeats=1,
)


def test_decode_counts_from_the_moment_when_all_rows_run() -> None:
    early = Answer([1] * 5, 0, [(1.0, 1), (2.0, 2), (4.0, 2)])
    late = Answer([1] * 3, 0, [(2.0, 1), (3.0, 1), (4.0, 1)])
    assert decode_rate([early, late]) == pytest.approx(4 / 2.0)
    assert steps_rate([1.0, 2.0, 3.0], 4) == pytest.approx(8 / 2.0)


def test_rates_need_more_than_one_token() -> None:
    with pytest.raises(BenchError, match="decode more"):
        decode_rate([Answer([1], 0, [(1.0, 1)])])
    with pytest.raises(BenchError, match="decode more"):
        steps_rate([1.0], 1)


def test_prompts_differ_from_their_first_words_on() -> None:
    prompts = serve.Prompts(lambda text: list(text.encode()))
    first, second = prompts.next(3000), prompts.next(3000)
    assert len(first) == len(second) == 3000 and first[0] != second[0]


def test_results_without_a_baseline_have_none() -> None:
    ours = {name: [2.0, 1.0, 3.0] for name in ("prefill", "decode_1", "cold", "hit", "cached")}
    rows = {r.metric: r for r in serve.results(serve.Params(batches=(1,)), ours, None, {1: True})}
    assert rows["prefill"].ours == 2.0
    assert all(r.baseline is None and r.ratio is None and r.exact is None for r in rows.values())


def test_a_model_that_is_not_there_is_a_reason() -> None:
    with pytest.raises(BenchError, match="no_such_model"):
        serve.run(serve.Params(model="./no_such_model.gguf"), lambda text: None)


@pytest.mark.model
def test_both_sides_draw_the_same_tokens_and_a_prefix_is_found() -> None:
    from belady.models.fetch import default_model_path

    pytest.importorskip("transformers")
    if default_model_path() is None:
        pytest.skip("the default model is not in the cache: run `belady fetch`")
    notes: list[str] = []
    rows = {r.metric: r for r in serve.run(TINY, notes.append)}
    assert not notes
    assert set(rows) == {
        "prefill",
        "decode_1",
        "decode_2",
        "ttft_cold",
        "ttft_hit",
        "hit_speedup",
        "hit_cached_tokens",
    }
    assert rows["decode_1"].exact and rows["decode_2"].exact
    assert 32 <= rows["hit_cached_tokens"].ours <= 60
    assert all(r.baseline is not None and r.baseline > 0 for r in list(rows.values())[:5])


@pytest.mark.model
def test_missing_transformers_leaves_the_baseline_empty_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from belady.models.fetch import default_model_path

    if default_model_path() is None:
        pytest.skip("the default model is not in the cache: run `belady fetch`")
    monkeypatch.setitem(sys.modules, "transformers", None)
    notes: list[str] = []
    rows = {r.metric: r for r in serve.run(TINY, notes.append)}
    assert len(notes) == 1 and "transformers is not installed" in notes[0]
    assert rows["prefill"].ours and rows["prefill"].baseline is None
