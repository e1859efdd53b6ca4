"""How streams behave in time: coalesced writes, keep-alives, disconnects, and nothing slow on the event loop."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from belady.api.app import create_app
from belady.api.config import ApiConfig
from belady.api.mock import MockConfig, MockEngine


def body(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "hello"}], **fields}).encode()


async def call(app, raw, *, path="/v1/chat/completions", hang_up: asyncio.Event | None = None):
    """Drive one ASGI call; returns the messages sent. `hang_up` set means the client disconnects."""
    sent: list[dict] = []
    given = False

    async def receive():
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": raw, "more_body": False}
        await (hang_up or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if hang_up is not None and message["type"] == "http.response.body":
            hang_up.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": [], "client": None, "server": ("t", 80),
        "scheme": "http", "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


def test_what_is_queued_goes_out_in_one_write():
    app = create_app(MockEngine())  # no delays: all tokens are ready at once
    sent = asyncio.run(call(app, body(stream=True, n=4)))
    bodies = [m["body"] for m in sent if m["type"] == "http.response.body" and m["body"]]
    events = b"".join(bodies).count(b"data: ")
    assert events > 40
    assert len(bodies) < events


def test_keepalive_comments_on_long_waits():
    app = create_app(MockEngine(MockConfig(first_delay=0.2)), ApiConfig(keepalive_seconds=0.02))
    sent = asyncio.run(call(app, body(stream=True)))
    bodies = [m["body"] for m in sent if m["type"] == "http.response.body"]
    assert bodies[0] == b": keep-alive\n\n"
    assert b"".join(bodies).endswith(b"data: [DONE]\n\n")


def test_refusal_after_a_keepalive_ends_the_stream_with_an_error():
    app = create_app(MockEngine(MockConfig(first_delay=0.1, fail_after=1)), ApiConfig(keepalive_seconds=0.01))
    sent = asyncio.run(call(app, body(stream=True)))
    assert sent[0]["status"] == 200
    data = b"".join(m.get("body", b"") for m in sent)
    assert b'"error":' in data
    assert data.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_aborts_and_frees(stream):
    engine = MockEngine(MockConfig(hang_after=3))
    app = create_app(engine)

    async def main():
        hang_up = asyncio.Event()
        running = asyncio.create_task(call(app, body(stream=stream, n=1), hang_up=hang_up))
        while not engine.requests:
            await asyncio.sleep(0.001)
        if not stream:
            hang_up.set()
        await running

    asyncio.run(asyncio.wait_for(main(), 20))
    assert (engine.active, engine.aborted) == (0, 1)
    assert app.state.context.active == 0


def test_disconnect_aborts_every_prompt_of_a_call():
    engine = MockEngine(MockConfig(hang_after=1))
    app = create_app(engine)

    async def main():
        hang_up = asyncio.Event()
        raw = json.dumps({"prompt": ["a", "b", "c"]}).encode()
        running = asyncio.create_task(call(app, raw, path="/v1/completions", hang_up=hang_up))
        while engine.active < 3:
            await asyncio.sleep(0.001)
        hang_up.set()
        await running

    asyncio.run(asyncio.wait_for(main(), 20))
    assert (engine.active, engine.aborted) == (0, 3)


def test_one_failing_prompt_ends_the_others():
    engine = MockEngine(MockConfig(fail_after=2))
    app = create_app(engine)
    sent = asyncio.run(call(app, json.dumps({"prompt": ["a", "b"]}).encode(), path="/v1/completions"))
    assert sent[0]["status"] == 500
    assert engine.active == 0


def test_text_work_runs_off_the_event_loop(monkeypatch):
    engine = MockEngine()
    threads: dict[str, int] = {}
    for name in ("encode", "decode", "render_chat"):
        real = getattr(engine.text, name)

        def spy(*args, _real=real, _name=name, **kwargs):
            threads.setdefault(_name, threading.get_ident())
            return _real(*args, **kwargs)

        monkeypatch.setattr(engine.text, name, spy, raising=False)
    app = create_app(engine)

    async def main():
        await call(app, body())
        await call(app, b'{"tokens": [65]}', path="/detokenize")
        return threading.get_ident()

    loop_thread = asyncio.run(main())
    assert set(threads) == {"encode", "decode", "render_chat"}
    # The mock decodes inside its own generate; what matters is who called first for each.
    assert threads["encode"] != loop_thread
    assert threads["render_chat"] != loop_thread


def test_an_engine_that_ends_without_a_reason_is_an_error():
    class Silent(MockEngine):
        async def generate(self, request):
            for _ in ():
                yield _

    sent = asyncio.run(asyncio.wait_for(call(create_app(Silent()), body()), 20))
    assert sent[0]["status"] == 500
    assert b"without a reason" in sent[1]["body"]


def test_drain_refuses_new_work_and_ends_the_old():
    engine = MockEngine(MockConfig(hang_after=2))
    app = create_app(engine, ApiConfig(drain_seconds=0.05))
    owner = app.state.context

    async def main():
        running = asyncio.create_task(call(app, body(stream=True)))
        while not engine.requests:
            await asyncio.sleep(0.001)
        draining = asyncio.create_task(owner.drain())
        await asyncio.sleep(0)
        refused = await call(app, body())
        await draining
        return refused, await running

    refused, running = asyncio.run(asyncio.wait_for(main(), 20))
    assert refused[0]["status"] == 503
    assert b'"draining"' in refused[1]["body"]
    data = b"".join(m.get("body", b"") for m in running)
    assert b"shutting down" in data
    assert data.endswith(b"data: [DONE]\n\n")
    assert engine.active == 0


def test_drain_lets_running_streams_finish():
    engine = MockEngine(MockConfig(token_delay=0.005))
    app = create_app(engine)

    async def main():
        running = asyncio.create_task(call(app, body(stream=True)))
        while not engine.requests:
            await asyncio.sleep(0.001)
        await app.state.context.drain()
        return await running

    data = b"".join(m.get("body", b"") for m in asyncio.run(asyncio.wait_for(main(), 20)))
    assert b'"finish_reason":"stop"' in data
    assert engine.aborted == 0
