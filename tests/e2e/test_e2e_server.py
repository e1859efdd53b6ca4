"""Life and death of the real server: start, ready line, taken ports, huge bodies, drain, signals."""

from __future__ import annotations

import signal
import threading

import httpx
import pytest

from belady.api.config import ApiConfig
from belady.api.mock import MockConfig
from belady.api.server import ListenError, listen, url_of

BODY = {"messages": [{"role": "user", "content": "hello"}]}


def test_ready_line_and_sigterm(spawn):
    child = spawn("serve", "--mock", "--port", "0", "--served-model-name", "m")
    ready = child.ready()
    assert (ready["event"], ready["model"], ready["pid"]) == ("ready", "m", child.process.pid)
    assert httpx.get(ready["url"] + "/ready").json() == {"status": "ready"}
    code, error = child.end()
    assert code == 0
    assert "Traceback" not in error


def test_sigterm_lets_a_running_stream_finish(spawn):
    child = spawn("serve", "--mock", "--port", "0")
    url = child.ready()["url"]
    body = BODY | {"stream": True, "ignore_eos": True, "max_tokens": 200}
    with httpx.stream("POST", url + "/v1/chat/completions", json=body, timeout=30) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data:")
        child.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]
    code, error = child.end()
    assert code == 0
    assert "Traceback" not in error


def test_draining_server_is_not_ready_and_refuses(serve):
    with serve(MockConfig(hang_after=2), ApiConfig(drain_seconds=1.0)) as server:
        with httpx.stream(
            "POST", server.url + "/v1/chat/completions", json=BODY | {"stream": True}
        ) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data:")
            server.stop()
            while httpx.get(server.url + "/ready").status_code != 503:
                pass
            refused = httpx.post(server.url + "/v1/chat/completions", json=BODY)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "draining"
            assert httpx.get(server.url + "/health").status_code == 200
            rest = [line for line in lines if line]
        assert "shutting down" in rest[-2]
        assert rest[-1] == "data: [DONE]"
        server.join()
        assert server.engine.active == 0


def test_port_in_use(spawn):
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ListenError, match="in use"):
            listen("127.0.0.1", port)
        child = spawn("serve", "--mock", "--port", str(port))
        _, error = child.process.communicate(timeout=60)
    assert child.process.returncode == 2
    assert (
        error.strip()
        == f"belady: port {port} on 127.0.0.1 is in use: stop what uses it, or choose another with --port (0 takes any)"
    )


@pytest.mark.parametrize(
    ("host", "says"), [("203.0.113.7", "not an address"), ("no such host", "cannot resolve")]
)
def test_bad_hosts(host, says):
    with pytest.raises(ListenError, match=says):
        listen(host, 0)


def test_url_of_wildcards():
    with listen("0.0.0.0", 0) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_hundred_megabytes_get_a_413(serve):
    chunk = b" " * (1 << 20)

    def flood():
        for _ in range(100):
            yield chunk

    with serve() as server:
        url = server.url + "/v1/chat/completions"
        streamed = httpx.post(url, content=flood(), timeout=60)
        announced = httpx.post(url, content=chunk * 100, timeout=60)
        for response in (streamed, announced):
            assert response.status_code == 413
            assert response.json()["error"]["code"] == "body_too_large"
        assert httpx.post(url, json=BODY).status_code == 200


def test_hanging_up_without_a_stream_aborts(serve):
    with serve(MockConfig(hang_after=3)) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + "/v1/chat/completions", json=BODY, timeout=httpx.Timeout(10, read=0.3))
        done = threading.Event()
        for _ in range(1000):
            if not server.engine.active:
                break
            done.wait(0.01)
        assert (server.engine.active, server.engine.aborted) == (0, 1)


def test_keep_alive_connection_survives_errors(serve):
    with serve() as server, httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            assert client.post("/v1/chat/completions", content=b"{").status_code == 400
            assert client.post("/v1/chat/completions", json=BODY).status_code == 200
            assert client.get("/nothing").status_code == 404
