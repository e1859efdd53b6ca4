"""`belady demo`: a server, a small multi-agent workload at it over HTTP, and a table of what happened."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from belady.cli.demo_agents import Agent, Call, Workload, drive
from belady.cli.errors import CommandFailed, UsageError

STOP_SECONDS = 40.0
"""How long the server may take to drain before it is killed."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="serve, and drive a small multi-agent workload at it",
        description="Start a server, let four agents work through it over HTTP, print a table, leave the server up.",
    )
    parser.add_argument(
        "model", nargs="?", help="a folder, a .gguf file or a hub id (default: the default model)"
    )
    parser.add_argument("--url", help="use a server that is running instead of starting one")
    parser.add_argument("--api-key", default=os.environ.get("BELADY_API_KEY"), help="or BELADY_API_KEY")
    parser.add_argument("--port", type=int, help="port of the server (default 8000, or any free one)")
    parser.add_argument("--once", action="store_true", help="stop after the table")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of work (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=32, help="tokens per answer (default %(default)s)")
    parser.add_argument("--mock", action="store_true", help="serve the mock engine, which needs no model")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of the server")


def run(args: argparse.Namespace) -> int:
    if args.rounds < 1 or args.max_tokens < 1:
        raise UsageError("--rounds and --max-tokens must be at least 1")
    console = Console()
    for number in (signal.SIGINT, signal.SIGTERM):
        # SIGINT too: a shell that runs us in the background hands it down ignored.
        signal.signal(number, _interrupt)
    with contextlib.ExitStack() as stack:
        server = None
        url = args.url.rstrip("/").removesuffix("/v1") if args.url else None
        if url is None:
            server, url = stack.enter_context(_server(args, console))
        _work(url, args, console)
        if not args.once:
            _stay(url, server, args.api_key, console)
    return 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _server(args: argparse.Namespace, console: Console) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a child process; drained at the end of the block."""
    command = [sys.executable, "-m", "belady.cli.main", "serve", "--port", str(_port(args.port))]
    command += ["--mock"] if args.mock else []
    command += [args.model] if args.model else []
    for setting in args.set:
        command += ["--set", setting]
    console.print("Starting the server ...")
    environment = os.environ | ({"BELADY_API_KEY": args.api_key} if args.api_key else {})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process, _await_ready(process)
    finally:
        _end(process)


def _port(asked: int | None) -> int:
    if asked is not None:
        return asked
    from belady.api.server import ListenError, listen

    try:
        listen("127.0.0.1", 8000).close()
    except ListenError:
        return 0
    return 8000


def _await_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(json.loads(line)["url"])
    code = process.wait()
    raise (UsageError if code == 2 else CommandFailed)(f"the server did not start (exit code {code})")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _work(url: str, args: argparse.Namespace, console: Console) -> None:
    def show(name: str, number: int, text: str) -> None:
        line = " ".join(text.split())
        room = max(20, console.width - 22)
        console.print(
            f"[dim]round {number}[/dim] [bold]{name:<13}[/bold]{escape(line[:room])}", highlight=False
        )

    async def main() -> list[Agent]:
        headers = {"authorization": f"Bearer {args.api_key}"} if args.api_key else {}
        timeout = httpx.Timeout(10.0, read=600.0)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout) as client:
            return await drive(client, Workload(rounds=args.rounds, max_tokens=args.max_tokens), show)

    started = time.monotonic()
    try:
        agents = asyncio.run(main())
    except httpx.TransportError as error:
        raise CommandFailed(f"cannot talk to {url}: {error or type(error).__name__}") from error
    console.print()
    console.print(table(agents))
    total = [call for agent in agents for call in agent.calls]
    prompt, cached = sum(c.prompt_tokens for c in total), sum(c.cached_tokens for c in total)
    console.print(
        f"{len(total)} calls in {time.monotonic() - started:.1f} s; "
        f"{cached / prompt:.0%} of {prompt} prompt tokens came from the cache.",
        highlight=False,
    )


def table(agents: Sequence[Agent]) -> Table:
    """One row per agent, and their sum."""
    made = Table(title="Tokens per agent", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("agent", no_wrap=True)
    for name in ("calls", "prompt", "cached", "hit", "output", "TTFT p50", "tok/s"):
        made.add_column(name, justify="right", no_wrap=True)
    for agent in agents:
        made.add_row(agent.name, *_row(agent.calls))
    made.add_section()
    made.add_row("all", *_row([call for agent in agents for call in agent.calls]), style="bold")
    return made


def _row(calls: Sequence[Call]) -> list[str]:
    prompt, cached = sum(c.prompt_tokens for c in calls), sum(c.cached_tokens for c in calls)
    output, decoding = sum(c.output_tokens for c in calls), sum(c.decoding for c in calls)
    # The first token of a call belongs to its TTFT; the rate is that of the tokens behind it.
    rate = (output - len(calls)) / decoding if decoding > 0 else None
    return [
        str(len(calls)),
        str(prompt),
        str(cached),
        f"{cached / prompt:.0%}",
        str(output),
        f"{statistics.median(c.first_token for c in calls) * 1000:.0f} ms",
        "-" if rate is None else f"{rate:.1f}",
    ]


def _stay(url: str, server: subprocess.Popen[str] | None, api_key: str | None, console: Console) -> None:
    """Show how to go on, and wait for Ctrl-C or the server's end."""
    key = " -H 'authorization: Bearer KEY'" if api_key else ""
    body = '{"messages": [{"role": "user", "content": "Name three fruits."}], "max_tokens": 40}'
    console.print(f"\nThe server is up at {url}. Try:\n", highlight=False)
    console.print(
        f"  curl {url}/v1/chat/completions{key} -H 'content-type: application/json' \\\n    -d '{body}'\n",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    console.print(f"  belady chat --url {url}\n", highlight=False)
    if server is None:
        return
    with contextlib.suppress(KeyboardInterrupt):
        console.print("Ctrl-C stops it.")
        code = server.wait()
        raise CommandFailed(f"the server ended by itself (exit code {code})")
    console.print("Stopping ...")
