"""`belady sim`: run a scenario, print its table, write JSON and a report. Knows only the terminal side."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from belady.cli.errors import CommandFailed, UsageError
from belady.models.fetch import cache_root
from belady.report.progress import progress
from belady.report.table import print_table
from belady.sim import scenario as scenarios
from belady.sim.assemble import Assembly, assemble
from belady.sim.present import COLUMNS, notes, page, rows
from belady.sim.record import LivelockError
from belady.sim.result import SimResult, latencies, summarise, to_json

OUT = Path("out")
LIMITS_FILE = "limits.json"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Register the subcommand with what `ArgumentParser.add_subparsers` returned."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sim",
        help="simulate a fleet on a trace",
        description="Run a scenario file through the serving scheduler in virtual time; print a table, write JSON and "
        "a self-contained HTML report. The same scenario and seed give the same bytes.",
    )
    parser.add_argument("scenario", type=Path, help="scenario file (TOML), such as examples/agents.toml")
    parser.add_argument(
        "--json", metavar="FILE", help="where the numbers go, - for standard output (default: out/NAME.json)"
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="where the report goes (default: out/NAME.html)"
    )
    parser.add_argument(
        "--set", metavar="A.B=C", action="append", default=[], dest="overrides", help="override a setting"
    )
    parser.add_argument("--seed", type=int, help="override the scenario's seed")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Simulate. With `--json -` standard output holds JSON alone and the table goes to standard error."""
    overrides = [*args.overrides, *([] if args.seed is None else [f"seed={args.seed}"])]
    scenario = scenarios.load(args.scenario, overrides)
    html = args.html or OUT / f"{scenario.name}.html"
    numbers = None if args.json == "-" else Path(args.json or OUT / f"{scenario.name}.json")
    _check_outputs(html, numbers)
    assembly = assemble(scenario, args.scenario.parent, os.environ, cache_root() / LIMITS_FILE)
    seconds = _simulate(assembly, scenario.name)
    result = summarise(scenario, assembly)
    _print(result, seconds, to_stderr=args.json == "-")
    _write(html, numbers, assembly, result)
    return 0


def _simulate(assembly: Assembly, name: str) -> float:
    """Run to the end and check that all pages and requests are accounted for; returns real seconds of the run."""
    began = time.perf_counter()
    with progress(name, assembly.source.total) as advance:
        try:
            assembly.simulation.run(advance)
        except LivelockError as error:
            raise CommandFailed(str(error)) from error
    seconds = time.perf_counter() - began
    assembly.simulation.check_integrity()
    return seconds


def _print(result: SimResult, seconds: float, *, to_stderr: bool) -> None:
    from rich.console import Console

    console = Console(stderr=to_stderr)
    print_table(result.scenario.title or result.name, COLUMNS, rows(result), console)
    stream = sys.stderr if to_stderr else sys.stdout
    for note in notes(result):
        print(f"- {note}", file=stream)
    rate = result.arrived / seconds if seconds else 0.0
    print(f"- simulated in {seconds:.1f} s: {rate:,.0f} requests per second of this process", file=stream)


def _check_outputs(html: Path, numbers: Path | None) -> None:
    """Make the folders and try to write in them, before a long run is lost to a wrong path. Raises `UsageError`."""
    if numbers is not None and numbers.absolute() == html.absolute():
        raise UsageError(f"--json and --html both name {html}; give them different files")
    if html.exists() and not html.is_file():
        raise UsageError(f"--html {html}: is not a regular file; name a file to be written")
    # The page is written beside its place and moved there, so that its folder must take new files.
    draft = html.with_name(f".{html.name}.{os.getpid()}.try")
    for option, target, tried in (("--html", html, draft), ("--json", numbers, numbers)):
        if target is None or tried is None:
            continue
        try:
            _try_to_write(tried)
        except OSError as error:
            raise UsageError(
                f"{option} {target}: cannot be written ({error.strerror or error}); name a file in a folder that you "
                "may write to"
            ) from error


def _try_to_write(target: Path) -> None:
    """Leaves existing files as they are and no new ones. Raises `OSError`."""
    if target.exists():
        if not (target.is_file() or target.is_dir()):
            return  # A pipe or device: opening it would be seen at its other end.
        with target.open("ab"):
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb"):
        pass
    target.unlink()


def _write(html: Path, numbers: Path | None, assembly: Assembly, result: SimResult) -> None:
    """The report, and the numbers to a file, or to standard output where `numbers` is None."""
    records = list(assembly.simulation.recorder.requests.values())
    page(result, latencies(records)).write(html)
    data = to_json(result)
    if numbers is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        print(f"report: {html}", file=sys.stderr)
        return
    numbers.write_bytes(data)
    print(f"report: {html}   numbers: {numbers}")
