"""`belady chat`: talk to any OpenAI-compatible server from a terminal, streaming. Keeps no history on disk."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from belady.api.sse import payload
from belady.cli.errors import CommandFailed, UsageError

HELP = "/reset forgets the conversation, /quit ends it; Ctrl-C stops an answer."


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("chat", help="talk to a server from the terminal", epilog=HELP)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default %(default)s)")
    parser.add_argument("--model", help="model name (default: the server's first)")
    parser.add_argument("--api-key", default=os.environ.get("BELADY_API_KEY"), help="or BELADY_API_KEY")
    parser.add_argument("--system", help="system message")
    parser.add_argument("--max-tokens", type=int, help="longest answer in tokens")
    parser.add_argument("--temperature", type=float, help="0 is greedy")
    parser.add_argument("--once", metavar="PROMPT", help="print one answer and end")


def run(args: argparse.Namespace) -> int:
    url = args.url.rstrip("/").removesuffix("/v1")
    headers = {"authorization": f"Bearer {args.api_key}"} if args.api_key else {}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(10.0, read=None)) as client:
            return _converse(client, args)
    except httpx.InvalidURL as error:
        raise UsageError(f"--url {args.url!r} is not a URL: {error}") from error
    except httpx.UnsupportedProtocol as error:
        raise UsageError(f"--url {args.url!r} must start with http:// or https://") from error
    except httpx.TransportError as error:
        raise CommandFailed(
            f"cannot talk to {url}: {error}; is a server running? (`belady serve`)"
        ) from error


def _converse(client: httpx.Client, args: argparse.Namespace) -> int:
    start = [{"role": "system", "content": args.system}] if args.system else []
    if args.once is not None:
        _say(client, args, [*start, {"role": "user", "content": args.once}])
        return 0
    messages = list(start)
    print(HELP, file=sys.stderr)
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if line in ("/quit", "/exit"):
            return 0
        if line == "/reset":
            messages = list(start)
        elif line:
            messages.append({"role": "user", "content": line})
            try:
                messages.append({"role": "assistant", "content": _say(client, args, messages)})
            except CommandFailed as error:
                messages.pop()
                print(f"belady: {error}", file=sys.stderr)


def _say(client: httpx.Client, args: argparse.Namespace, messages: Sequence[Mapping[str, str]]) -> str:
    """Print an answer as it comes, and return it. Ctrl-C ends it early; the server then aborts it."""
    body: dict[str, Any] = {"messages": messages, "stream": True}
    options = {"model": args.model, "max_tokens": args.max_tokens, "temperature": args.temperature}
    body |= {key: value for key, value in options.items() if value is not None}
    parts: list[str] = []
    try:
        for text in _answer(client, body):
            print(text, end="", flush=True)
            parts.append(text)
    except KeyboardInterrupt:
        if args.once is not None:
            raise
    finally:
        if parts:
            print()
    return "".join(parts)


def _answer(client: httpx.Client, body: Mapping[str, Any]) -> Iterator[str]:
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            response.read()
            raise CommandFailed(_problem(response))
        for line in response.iter_lines():
            data = payload(line)
            if data is None:
                continue
            chunk = json.loads(data)
            if "error" in chunk:
                raise CommandFailed(chunk["error"]["message"])
            for choice in chunk["choices"]:
                yield choice["delta"].get("content") or ""


def _problem(response: httpx.Response) -> str:
    try:
        return f"the server said {response.status_code}: {response.json()['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"the server said {response.status_code}: {response.text[:200]}"
