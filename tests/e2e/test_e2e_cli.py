"""`belady chat` and `belady demo` against a real server over the mock engine."""

from __future__ import annotations

import io
import signal

import pytest

from belady.api.config import ApiConfig
from belady.api.mock import MockConfig
from belady.cli.main import main


def test_chat_once(serve, capsys):
    with serve(config=ApiConfig(api_keys=("k",))) as server:
        assert main(["chat", "--url", server.url + "/v1", "--api-key", "k", "--once", "hello"]) == 0
        assert capsys.readouterr().out == "echo: hello\n"
        assert main(["chat", "--url", server.url, "--api-key", "no", "--once", "hello"]) == 1
        assert "401" in capsys.readouterr().err
        assert main(["chat", "--url", server.url, "--api-key", "k", "--once", "x" * 3000]) == 1
        assert "context window" in capsys.readouterr().err


def test_chat_keeps_the_conversation_until_reset(serve, capsys, monkeypatch):
    with serve() as server:
        monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n/reset\nthree\n/quit\n"))
        assert main(["chat", "--url", server.url, "--system", "be brief"]) == 0
        out = capsys.readouterr().out
        decode = server.engine.text.decode
        prompts = [decode(request.prompt_ids) for request in server.engine.requests]
    assert [line.lstrip("> ") for line in out.splitlines() if "echo" in line] == [
        "echo: one",
        "echo: two",
        "echo: three",
    ]
    head = "[system] be brief\n"
    assert prompts == [
        head + "[user] one\n[assistant] ",
        head + "[user] one\n[assistant] echo: one\n[user] two\n[assistant] ",
        head + "[user] three\n[assistant] ",
    ]


def test_chat_without_a_server(capsys):
    assert main(["chat", "--url", "http://127.0.0.1:9", "--once", "x"]) == 1
    assert "is a server running" in capsys.readouterr().err


def test_chat_shows_errors_of_streams(serve, capsys):
    with serve(MockConfig(fail_after=3)) as server:
        assert main(["chat", "--url", server.url, "--once", "hello"]) == 1
        assert "told to fail" in capsys.readouterr().err


@pytest.fixture
def restore_sigterm():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_demo_prints_a_table_that_adds_up(serve, capsys, restore_sigterm):
    with serve(MockConfig(context_length=8192, token_delay=0.0005)) as server:
        assert main(["demo", "--url", server.url, "--once", "--rounds", "2", "--max-tokens", "12"]) == 0
        requests = server.engine.requests
    out = capsys.readouterr().out
    rows = {words[0]: words[1:] for line in out.splitlines() if len(words := line.split()) == 9}
    del rows["agent"]
    assert set(rows) == {"planner", "researcher-1", "researcher-2", "writer", "all"}
    for column in (0, 1, 2, 4):
        total = sum(int(row[column]) for name, row in rows.items() if name != "all")
        assert int(rows["all"][column]) == total
    assert int(rows["all"][0]) == len(requests) == 8
    assert int(rows["all"][1]) == sum(len(request.prompt_ids) for request in requests)
    assert 0 < int(rows["all"][2]) < int(rows["all"][1])
    assert {request.program for request in requests} == {f"demo/{name}" for name in rows if name != "all"}


def test_demo_starts_and_stops_its_own_server(spawn):
    child = spawn("demo", "--mock", "--once", "--port", "0", "--rounds", "1", "--max-tokens", "8")
    out, err = child.process.communicate(timeout=60)
    assert child.process.returncode == 0, err
    assert "came from the cache" in out
    assert "Traceback" not in err


def test_demo_stays_up_until_interrupted(spawn):
    child = spawn("demo", "--mock", "--port", "0", "--rounds", "1", "--max-tokens", "4")
    lines = []
    for line in child.process.stdout:
        lines.append(line)
        if "Ctrl-C stops it" in line:
            break
    assert any("curl http://127.0.0.1:" in line for line in lines)
    code, err = child.end(signal.SIGINT)
    assert code == 0, err
    assert "Traceback" not in err


def test_demo_reports_a_server_that_does_not_start(spawn):
    child = spawn("demo", "--mock", "--once", "--port", "0", "--set", "api.nope=1")
    _, err = child.process.communicate(timeout=60)
    assert child.process.returncode == 2
    assert "api.nope" in err
    assert "did not start" in err


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.gguf", None, "there is no such file or folder"),
        ("bad.gguf", b"hello", "not a GGUF file"),
        ("short.gguf", b"GGUF\x03\x00\x00\x00", "damaged or incomplete"),
        ("folder", {}, "no config.json"),
        ("folder", {"config.json": b"{"}, "not a JSON object"),
        ("folder", {"config.json": b'{"model_type": "bert", "architectures": ["BertModel"]}'}, "bert"),
    ],
)
def test_models_that_cannot_be_served(tmp_path, capsys, name, content, says):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
        for file, data in content.items():
            (path / file).write_bytes(data)
    assert main(["serve", str(path), "--port", "0"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_no_default_model(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BELADY_CACHE", str(tmp_path))
    assert main(["serve", "--port", "0"]) == 2
    assert "belady fetch" in capsys.readouterr().err
