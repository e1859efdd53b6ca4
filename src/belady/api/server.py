"""Runs the application under uvicorn: binding, the ready signal, and a drain before the end.

Knows signals and sockets; knows nothing of models. The socket is bound before a model is loaded, so that a taken port
is found at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from belady.api.app import create_app
from belady.api.config import ApiConfig
from belady.api.context import Context
from belady.core.client import EngineClient

log = logging.getLogger("belady.api")

BACKLOG = 2048
CLOSE_SECONDS = 5
"""How long connections may take to close once nothing runs any more."""


class ListenError(OSError):
    """The address cannot be listened on; the message says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Clients may connect at once; they are answered when the server runs. Raises `ListenError`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise ListenError(f"cannot resolve host {host!r}: {error}; try 127.0.0.1") from error
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        raise ListenError(_listen_problem(error, host, port)) from error
    sock.setblocking(False)
    return sock


def _listen_problem(error: Exception, host: str, port: int) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use: stop what uses it, or choose another with --port (0 takes any)"
        )
    if code == errno.EACCES:
        return f"port {port} on {host} is not allowed for this user: choose one above 1023 with --port"
    if code == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine: use --host 127.0.0.1 or 0.0.0.0"
    return f"cannot listen on {host} port {port}: {error}"


def url_of(sock: socket.socket) -> str:
    """The URL a client on this machine can use."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handling, telling when it has started."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()


class Server:
    """One server over one engine client. `serve` owns the client from then on and closes it."""

    def __init__(self, client: EngineClient, config: ApiConfig, sock: socket.socket) -> None:
        self._client = client
        self._sock = sock
        self._app = create_app(client, config)
        self._stop: asyncio.Task[None] | None = None
        self._uvicorn: _Uvicorn | None = None

    @property
    def context(self) -> Context:
        found: Context = self._app.state.context
        return found

    async def serve(self, on_ready: Callable[[str], None]) -> None:
        """Serve until `stop` or SIGTERM or SIGINT; `on_ready` gets the URL once requests are answered."""
        url = url_of(self._sock)
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_graceful_shutdown=CLOSE_SECONDS,
            server_header=False,
        )
        self._uvicorn = _Uvicorn(config, lambda: on_ready(url))
        try:
            with self._signals():
                await self._uvicorn.serve(sockets=[self._sock])
        finally:
            if self._stop is not None:
                await asyncio.gather(self._stop, return_exceptions=True)
            await self._client.close()

    def stop(self) -> None:
        """Begin to drain; called again: abort what still runs. Call on the event loop's thread."""
        if self._stop is None:
            self._stop = asyncio.ensure_future(self._drain_and_exit())
        else:
            self.context.abort_all("the server was told twice to stop")

    async def _drain_and_exit(self) -> None:
        try:
            await self.context.drain()
        except Exception:
            log.exception("draining failed")
        finally:
            assert self._uvicorn is not None
            self._uvicorn.should_exit = True

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        for number in handled:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)


def run(
    client: EngineClient, config: ApiConfig, sock: socket.socket, on_ready: Callable[[str], None]
) -> None:
    """Serve until a signal; returns after a drain."""
    asyncio.run(Server(client, config, sock).serve(on_ready))
