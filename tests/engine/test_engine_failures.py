"""What breaks ends alone: failing steps, logits that are not numbers, observers that raise, a core that raises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import close, one, open_engine, run

from belady.core.client import EngineError
from belady.core.events import Event, Finished, FinishReason

PROMPT = [(3 * i) % 250 + 1 for i in range(50)]

Forward = Callable[[Any, Any], Any]


@pytest.fixture
def patched(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[int, Any, Forward], Any]], None]:
    """Puts a function (call number, batch, the true forward) in place of the backend's forward."""
    from belady.kernels.torch_backend import TorchBackend

    true = TorchBackend.forward

    def install(function: Callable[[int, Any, Forward], Any]) -> None:
        calls = iter(range(10**9))
        monkeypatch.setattr(
            TorchBackend, "forward", lambda self, batch: function(next(calls), batch, lambda b: true(self, b))
        )

    return install


@pytest.mark.parametrize("failing", [0, 3], ids=["prefill", "decode"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_failing_step_ends_its_requests_only(
    llama: Path, patched: Any, failing: int, overlap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def forward(call: int, batch: Any, true: Any) -> Any:
        if call == failing:
            raise RuntimeError("the device hiccupped")
        return true(batch)

    async def go() -> None:
        engine = open_engine(llama, overlap=overlap)
        events: list[Event] = []
        engine.subscribe(events.extend)
        bad = await one(engine, PROMPT)
        assert bad.last.finish_reason == "error" and "hiccupped" in bad.last.detail
        assert len(bad.ids) == failing
        good = await one(engine, PROMPT)
        assert good.last.finish_reason == "length" and len(good.ids) == 24
        # What the failed request computed is not trusted, unless an earlier step had stored it.
        assert good.last.usage is not None and (good.last.usage.cached_tokens == 0) == (failing == 0)
        ended = [e for e in events if isinstance(e, Finished)]
        assert [e.reason for e in ended] == [FinishReason.ERROR, FinishReason.LENGTH]
        await close(engine)
        patched(lambda call, batch, true: true(batch))
        fresh = open_engine(llama)
        assert (await one(fresh, PROMPT)).ids == good.ids
        await close(fresh)

    patched(forward)
    run(go())
    assert "step" in caplog.text and "hiccupped" in caplog.text


@pytest.mark.parametrize("call_number", [0, 4], ids=["first token", "later"])
def test_logits_that_are_not_numbers_end_one_request(llama: Path, patched: Any, call_number: int) -> None:
    poisoned: list[int] = []

    def forward(call: int, batch: Any, true: Any) -> Any:
        logits = true(batch)
        if call == call_number:
            poisoned.append(len(logits))
            logits[0] = np.nan
        return logits

    async def go() -> None:
        engine = open_engine(llama)
        bad, good = await asyncio.gather(one(engine, PROMPT), one(engine, PROMPT[::-1]))
        reasons = sorted(str(a.last.finish_reason) for a in (bad, good))
        assert reasons == ["error", "length"]
        failed = bad if bad.last.finish_reason == "error" else good
        assert "not numbers" in failed.last.detail and len(failed.ids) == call_number
        prompt = PROMPT if failed is bad else PROMPT[::-1]
        again = await one(engine, prompt)
        assert again.last.finish_reason == "length"
        if call_number == 0:
            assert again.last.usage is not None and again.last.usage.cached_tokens == 0
        await close(engine)

    patched(forward)
    run(go())
    assert poisoned


def test_observers_that_raise_are_reported(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    def observer(events: Any) -> None:
        raise ValueError("bad observer")

    async def go() -> None:
        engine = open_engine(llama)
        engine.subscribe(observer)
        assert len((await one(engine, PROMPT)).ids) == 24
        await close(engine)

    run(go())
    assert "bad observer" in caplog.text


def test_a_core_that_raises_ends_the_engine_aloud(
    llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        engine = open_engine(llama)

        def step(facts: Any, now: float) -> Any:
            raise AssertionError("pages are lost")

        monkeypatch.setattr(engine._scheduler, "step", step)
        for _ in range(2):
            with pytest.raises(EngineError, match="pages are lost") as caught:
                await one(engine, PROMPT)
            assert caught.value.code == "engine_failed"
        await engine.drain()
        await engine.close()

    run(go())
    assert "pages are lost" in caplog.text


def test_idle_engine_does_not_turn(llama: Path) -> None:
    """Without facts the loop blocks: the number of turns stays as it is."""

    async def go() -> None:
        engine = open_engine(llama)
        await one(engine, PROMPT)
        turns = 0
        true = engine._loop.turn

        def counted() -> None:
            nonlocal turns
            turns += 1
            true()

        engine._loop.turn = counted  # type: ignore[method-assign]
        await asyncio.sleep(0.3)
        assert turns <= 1
        await one(engine, PROMPT)
        assert turns > 1
        await close(engine)

    run(go())
