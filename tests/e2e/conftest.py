"""Real servers on real sockets: the mock engine in a thread, or any command line as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from belady.api.config import ApiConfig
from belady.api.mock import MockConfig, MockEngine
from belady.api.server import Server, listen


class Running:
    """A server in a thread of its own."""

    def __init__(self, engine: MockEngine, config: ApiConfig) -> None:
        self.engine = engine
        self._sock = listen(config.host, 0)
        self.server = Server(engine, config, self._sock)
        self.url = ""
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.server.serve(self._on_ready)

    def _on_ready(self, url: str) -> None:
        self.url = url
        self._ready.set()

    def start(self) -> Running:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def stop(self) -> None:
        """Begin to drain."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.server.stop)

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def running(mock: MockConfig | None = None, config: ApiConfig | None = None) -> Iterator[Running]:
    server = Running(MockEngine(mock), config or ApiConfig()).start()
    try:
        yield server
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has ended when the test stopped the server itself
            server.stop()
        server.join()


@pytest.fixture(scope="session")
def serve():
    """A context manager that starts a server over a mock engine."""
    return running


class Child:
    """`belady ...` as a process that prints a ready line."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "belady.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it and whatever it started, so that nothing keeps its pipes open."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def ready(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal it; returns exit code and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, error = self.process.communicate(timeout=60)
        return self.process.returncode, error


@pytest.fixture
def spawn():
    """Start `belady` child processes that end with the test."""
    children: list[Child] = []

    def start(*words: str, env: dict[str, str] | None = None) -> Child:
        children.append(Child(*words, env=env))
        return children[-1]

    yield start
    for child in children:
        child.kill()


@pytest.fixture(scope="session")
def real_server():
    """One server on the default model for the whole session; skips where the model is not in the cache."""
    from belady.models.fetch import default_model_path

    if default_model_path() is None:
        pytest.skip("the default model is not in the cache: run `belady fetch`")
    child = Child("serve", "--port", "0")
    try:
        yield child.ready()
        code, error = child.end()
        assert code == 0, error
        assert "Traceback" not in error
    finally:
        if child.process.poll() is None:
            child.process.kill()
            child.process.communicate()
