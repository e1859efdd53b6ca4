"""`belady fetch`: bring the default model into the cache and print its path. Knows only the terminal side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

from belady.models.errors import FetchError
from belady.models.fetch import DEFAULT_MODEL, fetch_default


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Register the subcommand with what `ArgumentParser.add_subparsers` returned."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "fetch",
        help="download the default model into the cache",
        description=f"Download {DEFAULT_MODEL.file_name} ({DEFAULT_MODEL.size / 1e6:.0f} MB, Apache-2.0) "
        f"into the cache, check it, and print its path. A model that is there already is only checked.",
    )
    parser.add_argument(
        "--cache-dir", type=Path, default=None, help="cache folder (default: BELADY_CACHE or ~/.cache/belady)"
    )
    parser.add_argument("--quiet", action="store_true", help="print the path only, no progress")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Fetch; print the path to standard output, progress and errors to standard error. Returns the exit status."""
    console = Console(stderr=True, quiet=args.quiet)
    try:
        with Progress(console=console, transient=True) as bars:
            tasks: dict[str, TaskID] = {}

            def show(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=None if stage == "download" else total)
                bars.update(tasks[stage], completed=done, total=total if done else None)

            path = fetch_default(args.cache_dir, show)
    except FetchError as error:
        print(f"belady fetch: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0
