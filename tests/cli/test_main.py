"""The command line as its users meet it: exit codes, messages, lazy modules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from belady.cli import main as cli
from belady.cli.errors import CommandFailed, UsageError
from belady.cli.main import main
from belady.cli.serve import settings_named
from belady.config import ConfigProblem
from belady.core.config import ConfigError
from belady.policy.registry import available


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def command(monkeypatch):
    """A subcommand `x` whose body is a function of the test."""
    import types

    def install(body):
        module = types.ModuleType("belady_test_command")
        module.add_parser = lambda subparsers: subparsers.add_parser("x")
        module.run = body
        monkeypatch.setitem(sys.modules, "belady_test_command", module)
        monkeypatch.setattr(cli, "COMMANDS", {"x": ("belady_test_command", "")})

    return install


def raising(error):
    def body(args):
        raise error

    return body


def test_no_command_prints_help(capsys):
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "serve" in err and "doctor" in err


def test_version(capsys):
    from belady import __version__

    assert run(capsys, "--version") == (0, f"belady {__version__}\n", "")


def test_log_level_is_checked(capsys, monkeypatch):
    monkeypatch.setenv("BELADY_LOG", "loud")
    code, _, err = run(capsys, "--version")
    assert code == 2
    assert "BELADY_LOG is 'loud'" in err and "DEBUG" in err
    monkeypatch.setenv("BELADY_LOG", "")
    assert run(capsys, "--version")[0] == 0


@pytest.mark.parametrize("words", [["nonsense"], ["serve", "--nonsense"], ["serve", "--port", "x"]])
def test_wrong_use_is_2(capsys, words):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "usage: belady" in err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UsageError("do this"), 2, "belady: do this\n"),
        (CommandFailed("it broke"), 1, "belady: it broke\n"),
        (ZeroDivisionError("boom"), 1, "belady: ZeroDivisionError: boom (--debug shows where)\n"),
        (ModuleNotFoundError("x", name="torch"), 2, "belady: the library 'torch' is not installed: pip install 'belady[torch]'\n"),
        (ModuleNotFoundError("x", name="uvicorn.y"), 2, "belady: the library 'uvicorn.y' is not installed: pip install 'belady[serve]'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)  # fmt: skip
def test_errors_become_messages(capsys, command, error, code, says):
    command(raising(error))
    assert run(capsys, "x") == (code, "", says)


def test_debug_shows_where(capsys, command):
    command(raising(ZeroDivisionError("boom")))
    code, _, err = run(capsys, "x", "--debug")
    assert code == 1
    assert "Traceback" in err


def test_help_of_a_command(capsys):
    code, out, _ = run(capsys, "serve", "--help")
    assert code == 0
    assert "--cors-origin" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["serve", "--set", "api.prt=1"], "did you mean api.port?"),
        (["serve", "--config", "/nonexistent.toml"], "cannot read /nonexistent.toml"),
        (["serve", "--port", "99999"], "api.port: expected"),
        (["chat", "--url", "http://127.0.0.1:1/x y", "--once", "q"], "127.0.0.1:1"),
        (["demo", "--rounds", "0"], "at least 1"),
    ],
)
def test_messages_say_what_to_do(capsys, words, says):
    code, _, err = run(capsys, *words)
    assert code in (1, 2)
    assert says in err
    assert "Traceback" not in err


def test_print_config_hides_secrets(capsys, monkeypatch):
    monkeypatch.setenv("BELADY_API_KEY", "sesame")
    code, out, err = run(capsys, "serve", "m.gguf", "--host", "h", "--print-config", "--set", "api.port=5")
    table = json.loads(out)
    assert (code, err) == (0, "")
    assert "sesame" not in out
    assert (table["model"]["source"], table["api"]["host"], table["api"]["port"]) == ("m.gguf", "h", 5)


def test_the_default_model_has_a_short_name():
    from belady.cli.serve import name_default
    from belady.config import Config, resolve

    assert name_default(Config(), "File.Q4", mock=False).api.served_names == (
        "smollm2-135m-instruct",
        "File.Q4",
    )
    assert name_default(Config(), "File.Q4", mock=True) == Config()
    named = resolve({"api": {"served_names": ["mine"]}}, [])
    assert name_default(named, "File.Q4", mock=False) == named
    other = resolve({"model": {"source": "x.gguf"}}, [])
    assert name_default(other, "x", mock=False) == other


def test_policy_list(capsys):
    code, out, _ = run(capsys, "policy", "list", "evict")
    assert code == 0
    assert "lru" in out and "clairvoyant" in out and "fcfs" not in out


def test_policy_rows_fit_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "policy", "list")
    assert len(out.splitlines()) == len(available()) + 1


def test_limits_that_contradict_name_the_setting():
    with pytest.raises(ConfigProblem, match=r"^engine\.step_tokens: 10 must exceed"), settings_named():
        raise ConfigError("step_tokens: 10 must exceed max_running (64)")
    with pytest.raises(ConfigProblem, match=r"^cache\.page_size: "), settings_named():
        raise ConfigError("page_size: must be at least 1")
    with pytest.raises(ConfigProblem, match=r"^groups: "), settings_named():
        raise ConfigError("groups: at least one")


def test_the_package_of_commands_loads_no_heavy_library():
    script = "import sys, belady.cli.main, belady.config; print([m for m in sys.modules if m in " + (
        "('torch', 'numpy', 'starlette', 'uvicorn', 'tokenizers', 'httpx', 'prometheus_client')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["serve", "--mock", "some-model"], "--mock serves no model"),
        (["chat", "--url", "nonsense", "--once", "hi"], "must start with http"),
    ],
)
def test_contradictions_and_bad_urls_are_2(capsys, words, says):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert not captured.out
