"""Sources: what they read, in which order they send, and what they say about it."""

from __future__ import annotations

import gzip
import json
from array import array
from itertools import pairwise
from pathlib import Path

import pytest

from belady.core.request import Request
from belady.formats import read_azure, read_mooncake
from belady.sim.workload import Call, Source, WorkloadConfig, WorkloadError, build
from belady.sim.workload.base import Limits
from belady.sim.workload.build import locate

DATA = Path(__file__).parents[2] / "examples" / "data"


def source(kind: str, path: Path | None, key_tokens: int, **settings: object) -> Source:
    context = settings.pop("max_context", 10**6)
    seed = settings.pop("seed", 0)
    clairvoyant = settings.pop("clairvoyant", False)
    if kind != "synthetic":
        settings["path"] = str(path)
    config = WorkloadConfig(source=kind, **settings)  # type: ignore[arg-type]
    return build(
        config,
        path,
        max_context=context,  # type: ignore[arg-type]
        key_tokens=key_tokens,
        seed=seed,  # type: ignore[arg-type]
        clairvoyant=clairvoyant,  # type: ignore[arg-type]
    )


def play(source: Source, service: float = 1.0) -> list[Call]:
    """Every call in order of its time, each taking `service` seconds."""
    waiting = list(source.initial())
    sent: list[Call] = []
    while waiting:
        waiting.sort(key=lambda c: (c.at, c.request.rid))
        call = waiting.pop(0)
        sent.append(call)
        waiting += source.ended(call.request.rid, call.at + service)
    return sent


def test_mooncake_calls_are_its_rows() -> None:
    path = DATA / "mooncake_excerpt.jsonl"
    calls = play(source("mooncake", path, 512, time_scale=0.5))
    rows = list(read_mooncake(path))
    assert len(calls) == len(rows) == 300
    for call, row in zip(calls, rows, strict=True):
        assert call.at == row.timestamp / 1000 * 0.5
        assert array("i", call.request.prompt).tolist() == list(row.hash_ids)
        assert (call.request.prompt_tokens, call.output.length) == (row.input_length, row.output_length)


def test_azure_calls_share_nothing_and_say_so() -> None:
    path = DATA / "azure_code_excerpt.csv"
    azure = source("azure", path, 16, limit=50)
    calls = play(azure)
    rows = list(read_azure(path))[:50]
    assert [c.request.prompt_tokens for c in calls] == [r.context_tokens for r in rows]
    assert all(c.request.prompt == b"" for c in calls)
    assert any("no prefix is shared" in note for note in azure.notes())


def test_clipping_is_asked_for_and_counted() -> None:
    path = DATA / "mooncake_excerpt.jsonl"
    long = sum(row.input_length + row.output_length > 20_000 for row in read_mooncake(path))
    assert long > 0
    clipped = source("mooncake", path, 512, clip=True, max_context=20_000)
    calls = play(clipped)
    assert all(c.request.prompt_tokens + (c.output.length or 0) <= 20_000 for c in calls)
    assert all(len(c.request.prompt) // 4 == -(-c.request.prompt_tokens // 512) for c in calls)
    assert [n for n in clipped.notes() if n.startswith(f"{long:,} prompts were cut")]
    whole = source("mooncake", path, 512, max_context=20_000)
    assert max(c.request.prompt_tokens for c in play(whole)) > 20_000 and whole.notes() == []


def test_limits_bound_what_clients_ask_for() -> None:
    limits = Limits(max_context=100, max_tokens=30)
    assert limits.fit(50, 10) == (50, 30, 10)
    assert limits.fit(80, 0) == (80, 20, 1)
    assert limits.fit(150, 5) == (150, 1, 5), "the core refuses it; a request still asks for a token"
    assert limits.notes() == ["1 recorded outputs of 0 tokens count as 1 token"]


def test_a_clairvoyant_run_knows_the_next_use_of_every_block() -> None:
    path = DATA / "mooncake_excerpt.jsonl"
    calls = play(source("mooncake", path, 512, clairvoyant=True, limit=100))
    ids = [array("i", c.request.prompt).tolist() for c in calls]
    told = 0
    for number, call in enumerate(calls):
        for entry in call.request.reuse:
            last = ids[number][entry.upto - 1]
            if entry.at != float("inf"):
                told += 1
                assert last in ids[int(entry.at)]
                assert not any(last in ids[k] for k in range(number + 1, int(entry.at)))
    assert told > 20


def test_a_closed_loop_has_no_known_order() -> None:
    with pytest.raises(WorkloadError, match=r"policy\.evict: next uses need the order"):
        source("weka", DATA / "weka_excerpt.jsonl.gz", 64, clairvoyant=True)


# -- weka --------------------------------------------------------------------------------------------------------------


def _call(t: float, tokens: int, first: int = 0, **more: object) -> dict[str, object]:
    ranges = [[first, first + tokens // 64 - 1]] if tokens >= 64 else []
    return {
        "t": t,
        "type": "n",
        "model": "m",
        "in": tokens,
        "out": 5,
        "api_time": 2.0,
        "hash_id_ranges": ranges,
        **more,
    }


def _agent(t: float, status: str, calls: list[dict[str, object]]) -> dict[str, object]:
    return {
        "t": t,
        "type": "subagent",
        "agent_id": f"agent-{t}",
        "subagent_type": "Explore",
        "status": status,
        "duration_ms": 10_000,
        "requests": calls,
    }


def _weka(folder: Path, *conversations: list[dict[str, object]]) -> Path:
    path = folder / "weka.jsonl.gz"
    with gzip.open(path, "wt") as out:
        for number, requests in enumerate(conversations):
            json.dump({"id": f"c{number}", "block_size": 64, "requests": requests}, out)
            out.write("\n")
    return path


def test_the_next_call_waits_for_the_answer_and_the_think_time(tmp_path: Path) -> None:
    path = _weka(tmp_path, [_call(0, 64), _call(9, 130, think_time=7.0), _call(20, 200)])
    for service in (1.0, 50.0):
        calls = play(source("weka", path, 64, stagger=0.0), service)
        # The third call has no think time: the clock says 20 - (9 + 2) seconds.
        assert [c.at for c in calls] == [0.0, service + 7.0, 2 * service + 16.0]
        assert [len(c.request.prompt) // 4 for c in calls] == [1, 2, 3]
        assert {c.request.namespace for c in calls} == {"c0"}


@pytest.mark.parametrize(
    ("status", "last"), [("completed", 1.0 + 1.0 + 2 * 1.0 + 3.0 + 2.0), ("async_launched", 14.0)]
)
def test_a_parent_waits_for_its_sub_agents_unless_they_are_asynchronous(
    tmp_path: Path, status: str, last: float
) -> None:
    # Parent: 0-2; agent from 3 to 13 with two calls, 3 s of thought between them; parent goes on at 15 (13 s later).
    agent = _agent(3.0, status, [_call(0, 64, 900), _call(5, 64, 900, think_time=3.0)])
    path = _weka(tmp_path, [_call(0, 64), agent, _call(15, 128, think_time=13.0)])
    calls = play(source("weka", path, 64, stagger=0.0))
    by_program: dict[str | None, list[float]] = {}
    for one in calls:
        by_program.setdefault(one.request.program, []).append(one.at)
    assert by_program["c0/agent-3.0"] == [2.0, 6.0], "starts 1 s after the call before it, as recorded"
    assert by_program["c0"] == [0.0, last]
    assert {c.request.parent for c in calls if c.request.program != "c0"} == {"c0"}


def test_conversations_overlay_a_few_at_a_time(tmp_path: Path) -> None:
    path = _weka(tmp_path, *([_call(0, 64), _call(4, 128, think_time=2.0)] for _ in range(5)))
    calls = play(source("weka", path, 64, concurrent=2, stagger=3.0))
    assert len(calls) == 10
    spans: dict[str | None, list[float]] = {}
    for one in calls:
        spans.setdefault(one.request.program, []).append(one.at)
    for at in (c.at for c in calls):
        assert sum(s[0] <= at < s[-1] + 1.0 for s in spans.values()) <= 2
    orders = [[c.request.program for c in play(source("weka", path, 64, seed=s))] for s in (0, 0, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len({tuple(o) for o in orders}) > 1


def test_the_excerpt_is_sent_whole() -> None:
    weka = source("weka", DATA / "weka_excerpt.jsonl.gz", 64)
    calls = play(weka)
    assert len(calls) == weka.total and len({c.request.rid for c in calls}) == len(calls)
    assert any(c.request.parent for c in calls), "it holds sub-agents"


def test_another_block_length_is_an_error() -> None:
    with pytest.raises(WorkloadError, match=r"core\.key_tokens = 64"):
        source("weka", DATA / "weka_excerpt.jsonl.gz", 512)


# -- synthetic ---------------------------------------------------------------------------------------------------------


def test_a_turn_extends_the_one_before_by_the_answer_and_new_tokens() -> None:
    calls = play(source("synthetic", None, 1))
    by_program: dict[str | None, list[Call]] = {}
    for one in calls:
        by_program.setdefault(one.request.program, []).append(one)
    assert len(by_program) == 64
    for turns in by_program.values():
        for before, after in pairwise(turns):
            assert before.output.tokens is not None and len(before.output.tokens) == before.output.length
            carried = before.request.prompt + array("i", before.output.tokens).tobytes()
            assert after.request.prompt.startswith(carried)
            assert len(after.request.prompt) > len(carried)
    firsts = [turns[0].request.prompt for turns in by_program.values()]
    assert len({p[: 4 * 1000] for p in firsts}) == 1, "all share the system prompt"
    assert len({p[: 4 * 1500] for p in firsts}) == 4, "and each role its own"
    assert len({p[: 4 * 1501] for p in firsts}) > 4


def test_content_does_not_depend_on_timing() -> None:
    def prompts(service: float) -> list[tuple[str | None, Request]]:
        calls = play(source("synthetic", None, 1), service)
        return sorted((c.request.program or "", c.request.prompt) for c in calls)  # type: ignore[misc]

    assert prompts(0.1) == prompts(100.0)


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_excerpt_stands_in_for_missing_data_and_says_so(tmp_path: Path) -> None:
    config = WorkloadConfig(source="mooncake", path="$BELADY_DATA/m/a.jsonl", fallback="data/b.jsonl")
    path, note = locate(config, tmp_path, {})
    assert path == tmp_path / "data/b.jsonl" and note is not None and "BELADY_DATA is not set" in note
    assert locate(config, tmp_path, {"BELADY_DATA": "/d"}) == (Path("/d/m/a.jsonl"), None)
    with pytest.raises(WorkloadError, match="BELADY_DATA"):
        locate(WorkloadConfig(source="mooncake", path="$BELADY_DATA/m/a.jsonl"), tmp_path, {})
