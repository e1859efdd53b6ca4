"""`belady`: finds the subcommand, loads its module alone, and turns errors into messages and exit codes.

Exit codes: 0 well done, 1 failure, 2 wrong use, configuration or environment. Users see no traceback, except with
`--debug` or BELADY_DEBUG set.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import ModuleType

from belady import __version__
from belady.cli.errors import UsageError

OK, FAILURE, USAGE = 0, 1, 2
INTERRUPTED = 130
FAILURES = frozenset({"CommandFailed", "LedgerError", "OutOfRangeError"})
"""Our own errors that tell of failed work; all others tell of use, configuration or environment."""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "serve": ("belady.cli.serve", "serve a model over HTTP"),
    "chat": ("belady.cli.chat", "talk to a server from the terminal"),
    "demo": ("belady.cli.demo", "serve, and drive a small multi-agent workload at it"),
    "sim": ("belady.cli.sim", "simulate a fleet on a trace"),
    "bench": ("belady.cli.bench", "run one reproducible experiment"),
    "fetch": ("belady.cli.fetch", "download the default model into the cache"),
    "doctor": ("belady.cli.doctor", "say what this machine can do and what is missing"),
    "policy": ("belady.cli.policy", "list policies"),
}
"""Subcommand: its module and a line of help. Each module has `add_parser(subparsers)` and `run(args) -> int`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or bool(os.environ.get("BELADY_DEBUG"))
    try:
        logging.basicConfig(level=_log_level(debug), format="%(levelname)s %(name)s: %(message)s")
        return _dispatch([word for word in words if word != "--debug"])
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; nothing may be written any more, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _report(error)


def _log_level(debug: bool) -> int:
    if debug:
        return logging.DEBUG
    name = os.environ.get("BELADY_LOG") or "WARNING"
    levels = logging.getLevelNamesMapping()
    if name.upper() not in levels:
        raise UsageError(f"BELADY_LOG is {name!r}: set it to one of {', '.join(levels)}")
    return levels[name.upper()]


def _dispatch(words: Sequence[str]) -> int:
    name = next((word for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="belady", description="Serve, simulate and measure LLM agents.")
    parser.add_argument("--version", action="version", version=f"belady {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and debug logs")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    module = None
    for command, (path, text) in COMMANDS.items():
        if command == name:
            module = _load(path)
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(command, help=text, add_help=False)
    try:
        args = parser.parse_args(words)
    except SystemExit as end:  # argparse has printed what to say
        return end.code if isinstance(end.code, int) else USAGE
    if module is None:
        parser.print_help(sys.stderr)
        return USAGE
    return int(module.run(args))


def _load(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("belady"):
            raise
        raise missing(error) from error


def missing(error: ModuleNotFoundError) -> UsageError:
    """What to say when a library of an extra is not installed."""
    extra = "torch" if (error.name or "").split(".")[0] == "torch" else "serve"
    return UsageError(f"the library {error.name!r} is not installed: pip install 'belady[{extra}]'")


def _report(error: Exception) -> int:
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("belady"):
        error = missing(error)
    if not type(error).__module__.startswith("belady."):
        print(f"belady: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return FAILURE
    print(f"belady: {error}", file=sys.stderr)
    return FAILURE if type(error).__name__ in FAILURES else USAGE


if __name__ == "__main__":
    sys.exit(main())
