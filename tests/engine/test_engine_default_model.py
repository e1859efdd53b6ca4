"""The default model through the engine: it talks sense, and no option changes what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tiny_models import close, one, run

from belady.core.client import EngineClient
from belady.engine.engine import Engine
from belady.engine.sizes import EngineConfig
from belady.models.source import open_model

pytestmark = pytest.mark.model

QUESTIONS = ("Name the capital of France in one short sentence.", "Count from one to five in words.")


async def ask(**config: Any) -> list[str]:
    with open_model() as source:
        engine = Engine.load(source, EngineConfig(**{"cache_bytes": 128 << 20} | config))
    client: EngineClient = engine
    prompts = [
        engine.text.encode(
            client.text.render_chat([{"role": "user", "content": question}]), add_special=False
        )
        for question in QUESTIONS
    ]
    options: dict[str, Any] = {"max_tokens": 12, "ignore_eos": False}
    got = await asyncio.gather(*(one(engine, prompt, **options) for prompt in prompts))
    stopped = await one(engine, prompts[0], stop=("ris",), **options)
    assert stopped.text == got[0].text[: got[0].text.index("ris")] and stopped.last.stop_reason == "ris"
    await close(engine)
    return [answer.text for answer in got]


def test_says_the_same_whatever_the_options() -> None:
    pytest.importorskip("torch")
    plain = run(ask(prefix_cache=False, overlap=False, max_repeat=1))
    assert "Paris" in plain[0]
    assert run(ask(page_size=1, step_tokens=65)) == plain
