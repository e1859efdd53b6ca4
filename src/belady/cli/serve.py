"""`belady serve [MODEL]`: bind, load, serve, drain. Knows flags and the order of start-up; the work is elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from belady.cli.errors import UsageError
from belady.config import Config, ConfigProblem, load
from belady.core.client import EngineClient
from belady.core.config import ConfigError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve a model to OpenAI clients. A --set wins over a flag, a flag over the file.",
    )
    parser.add_argument(
        "model", nargs="?", help="a folder, a .gguf file or a hub id (default: the default model)"
    )
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes any free one (default 8000)")
    parser.add_argument(
        "--api-key", action="append", help="a key clients must send; repeat for several (or BELADY_API_KEY)"
    )
    parser.add_argument("--served-model-name", action="append", help="name clients use; repeat for several")
    parser.add_argument(
        "--cors-origin", action="append", help="a web origin that may call; repeat for several"
    )
    parser.add_argument("--cache-bytes", type=int, help="memory of the KV cache (default 1 GiB)")
    parser.add_argument(
        "--max-context", type=int, help="longest prompt plus output in tokens (default: the model's)"
    )
    parser.add_argument("--config", type=Path, help="a TOML file of settings")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="one setting, e.g. cache.page_size=16"
    )
    parser.add_argument("--mock", action="store_true", help="serve the mock engine, which needs no model")
    parser.add_argument("--print-config", action="store_true", help="print the resolved settings and stop")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal. Standard output gets one JSON line when ready."""
    if args.mock and args.model:
        raise UsageError(f"--mock serves no model: leave out {args.model!r} or --mock")
    config = load(args.config, args.set, flags(args))
    if args.print_config:
        print(describe(config))
        return 0
    from belady.api.server import listen, run

    # Bind first: a taken port is found before minutes go into loading.
    with listen(config.api.host, config.api.port) as sock:
        client = open_mock() if args.mock else open_engine(config)
        config = name_default(config, client.model.name, mock=args.mock)
        run(client, config.api, sock, lambda url: announce(url, client.model.name, config))
    return 0


def name_default(config: Config, name: str, *, mock: bool) -> Config:
    """The default model answers to a short name and to its file's, unless names were given."""
    if mock or config.model.source is not None or config.api.served_names:
        return config
    from belady.models.fetch import DEFAULT_NAME

    return replace(config, api=replace(config.api, served_names=(DEFAULT_NAME, name)))


def open_engine(config: Config) -> EngineClient:
    """Load the model; progress goes to standard error."""
    from belady.config.engine import engine_config
    from belady.engine.engine import Engine
    from belady.models.source import open_model

    name = config.model.source or "the default model"
    status = Console(stderr=True).status(f"Loading {name} ...")
    with settings_named(), status, open_model(config.model.source) as source:
        if source.chat_template is not None and source.chat_template.problem is not None:
            print(f"belady: warning: {source.chat_template.problem}", file=sys.stderr)
        return Engine.load(source, engine_config(config))


@contextmanager
def settings_named() -> Iterator[None]:
    """The core says which of its own fields is wrong: say which setting that is."""
    try:
        yield
    except ConfigError as error:
        field, colon, what = str(error).partition(":")
        section = next(
            (name for name in ("engine", "cache") if hasattr(getattr(Config(), name), field)), None
        )
        raise ConfigProblem(f"{section}.{field}{colon}{what}" if section else str(error)) from error


def open_mock() -> EngineClient:
    """The shipped mock, at a speed that a reader can follow."""
    from belady.api.mock import MockConfig, MockEngine

    return MockEngine(
        MockConfig(context_length=8192, cache_tokens=65536, first_delay=0.02, token_delay=0.005)
    )


def flags(args: argparse.Namespace) -> dict[str, Any]:
    """Flags that were given, as a configuration table."""
    env_key = os.environ.get("BELADY_API_KEY")
    api = {
        "host": args.host,
        "port": args.port,
        "api_keys": args.api_key or ([env_key] if env_key else None),
        "served_names": args.served_model_name,
        "cors_origins": args.cors_origin,
    }
    table: dict[str, dict[str, Any]] = {
        "api": api,
        "cache": {"bytes": args.cache_bytes},
        "engine": {"max_context": args.max_context},
        "model": {"source": args.model},
    }
    return {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in table.items()
    }


def describe(config: Config) -> str:
    """The resolved settings as JSON, without secrets."""
    import msgspec

    table = msgspec.to_builtins(config)
    table["api"]["api_keys"] = ["***"] * len(config.api.api_keys)
    return json.dumps(table, indent=2)


def announce(url: str, model: str, config: Config) -> None:
    """One line for programs on standard output, one for people on standard error."""
    line = {"event": "ready", "url": url, "model": (*config.api.served_names, model)[0], "pid": os.getpid()}
    print(json.dumps(line), flush=True)
    print(
        f"Belady serves {model} at {url} (OpenAI base URL {url}/v1); Ctrl-C stops it",
        file=sys.stderr,
        flush=True,
    )
