"""`belady bench NAME`: runs one experiment, prints its table, writes its JSON.

Exit code 0 when the experiment ran, whatever it found; 1 when it could not run.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from belady.bench.experiment import EXPERIMENTS, BenchError, experiment
from belady.bench.machine import fingerprint, revision
from belady.cli.errors import CommandFailed, UsageError
from belady.cli.sim import LIMITS_FILE
from belady.models.fetch import cache_root
from belady.report.bench_json import BenchReport, to_json
from belady.report.table import Cell, print_table


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench", help="run one reproducible experiment")
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="smaller and shorter, for a first look")
    parser.add_argument(
        "--json", metavar="FILE", help="write the results here (-: standard output, and only that)"
    )
    parser.add_argument("--list", action="store_true", help="name the experiments and what each claims")


def run(args: argparse.Namespace) -> int:
    if args.list:
        rows = [(name, experiment(name).CLAIM) for name in EXPERIMENTS]
        print_table("experiments", ("name", "claim"), rows)
        return 0
    if args.name is None:
        raise UsageError("name an experiment; `belady bench --list` shows them")
    report = measure(args.name, quick=args.quick)
    to_stdout = args.json == "-"
    console = Console(stderr=to_stdout)
    show(report, console)
    if report.name == "limits":
        keep(report)
    if to_stdout:
        print(to_json(report))
    elif args.json is not None:
        _write(Path(args.json), to_json(report))
    return 0


def measure(name: str, *, quick: bool) -> BenchReport:
    """Run an experiment and put the machine beside its results. Raises `CommandFailed` where it cannot run."""
    chosen = experiment(name)
    params = chosen.params(quick)
    env = fingerprint(datetime.now(UTC).isoformat(timespec="seconds"))
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        print(f"belady bench {name}: {text}", file=sys.stderr)

    try:
        results = chosen.run(params, note)
    except BenchError as error:
        raise CommandFailed(f"bench {name} cannot run: {error}") from error
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("belady"):
            raise
        raise CommandFailed(
            f"bench {name} cannot run: the library {error.name!r} is not installed; "
            "pip install 'belady[serve,torch]'"
        ) from error
    return BenchReport(
        name=name,
        env={**env, "notes": notes},
        commit=revision(),
        params={"quick": quick, **asdict(params)},
        results=results,
    )


def show(report: BenchReport, console: Console) -> None:
    """Print the results and what a reader must know about them."""
    columns = ("metric", "ours", "unit", "baseline", "baseline is", "ratio", "bound", "goal", "met", "exact")
    rows: list[tuple[Cell, ...]] = [
        (r.metric, r.ours, r.unit, r.baseline, r.baseline_name, r.ratio, r.bound, r.goal, r.met, r.exact)
        for r in report.results
    ]
    used = [i for i in range(len(columns)) if i < 3 or any(row[i] is not None for row in rows)]
    print_table(
        f"bench {report.name} on {report.env['cpu']}, {report.env['usable_cores']} cores",
        [columns[i] for i in used],
        [[row[i] for i in used] for row in rows],
        console,
    )


def keep(report: BenchReport) -> None:
    """Leave the machine's limits where simulations of this machine look for them."""
    target = cache_root() / LIMITS_FILE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(to_json(report) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"belady bench limits: {target} cannot be written ({error.strerror})", file=sys.stderr)
        return
    print(f"belady bench limits: kept in {target} for simulations of this machine", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--json {path}: cannot be written ({error.strerror}); name another file") from error
