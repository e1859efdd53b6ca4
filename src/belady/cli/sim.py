"""`belady sim`: run a scenario, print its table, write JSON and a report. Knows only the terminal side."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from belady.models.fetch import cache_root
from belady.report.progress import progress
from belady.report.table import print_table
from belady.sim import scenario as scenarios
from belady.sim.assemble import Assembly, assemble
from belady.sim.present import COLUMNS, notes, page, rows
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
    assembly = assemble(scenario, args.scenario.parent, os.environ, cache_root() / LIMITS_FILE)
    seconds = _simulate(assembly, scenario.name)
    result = summarise(scenario, assembly)
    _print(result, seconds, to_stderr=args.json == "-")
    _write(args, assembly, result)
    return 0


def _simulate(assembly: Assembly, name: str) -> float:
    """Run to the end and check that all pages and requests are accounted for; returns real seconds of the run."""
    began = time.perf_counter()
    with progress(name, assembly.source.total) as advance:
        assembly.simulation.run(advance)
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


def _write(args: argparse.Namespace, assembly: Assembly, result: SimResult) -> None:
    html = args.html or OUT / f"{result.name}.html"
    records = list(assembly.simulation.recorder.requests.values())
    page(result, latencies(records)).write(html)
    data = to_json(result)
    if args.json == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        print(f"report: {html}", file=sys.stderr)
        return
    target = Path(args.json) if args.json else OUT / f"{result.name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    print(f"report: {html}   numbers: {target}")
