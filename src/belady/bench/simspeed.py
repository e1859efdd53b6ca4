"""`simspeed`: how many requests of the Mooncake conversation trace one process simulates per second of wall time.

One replica of four H100s working as one serves Llama-3.1-8B: large enough that the hour of arrivals does not pile up,
with the memory for KV that is left then. Everything runs as in `belady sim`: scheduler, prefix tree, eviction, cost
model, records. Reading the trace and summarising are not counted.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from belady.bench.experiment import BenchError, Note
from belady.bench.traces import locate
from belady.report.bench_json import Result, compared
from belady.sim.assemble import Assembly, assemble
from belady.sim.scenario import Scenario, decode

CLAIM = "a trace is simulated far faster than it happened, on one core"
GOAL = 2_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """`requests` None: all of the trace. The fastest of `repeats` counts: the work is the same every time."""

    requests: int | None = None
    repeats: int = 3
    hardware: str = "h100"
    devices: int = 4
    model: str = "llama-3.1-8b"
    evict: str = "lru"


def params(quick: bool) -> Params:
    return Params(requests=3_000, repeats=2) if quick else Params()


def run(params: Params, note: Note) -> list[Result]:
    path, _ = locate("mooncake/conversation_trace.jsonl", "mooncake_excerpt.jsonl", note)
    runs = [_once(params, path) for _ in range(params.repeats)]
    took, _, assembly = min(runs, key=lambda one: one[0])
    cpu = min(cpu for _, cpu, _ in runs)
    records = assembly.simulation.recorder.requests
    finished = sum(1 for record in records.values() if record.ended is not None)
    virtual = assembly.simulation.now
    if not finished:
        raise BenchError(f"{path}: no request ended; is it a Mooncake trace?")
    replica = assembly.simulation.servers[0].replica
    return [
        compared(
            "requests_per_s",
            "simulated requests per second of wall time, one replica, one process",
            "requests/s",
            finished / took,
            better="higher",
            goal=GOAL,
        ),
        compared(
            "requests_per_cpu_s",
            "the same per second of processor time, which neighbours on the machine disturb less",
            "requests/s",
            finished / cpu,
            better="higher",
        ),
        compared(
            "speedup",
            "simulated seconds per second of wall time",
            "x",
            virtual / took,
            better="higher",
        ),
        compared(
            "time_per_step",
            "wall time per planned step: scheduler, cost model, event heap and records",
            "us",
            1e6 * took / max(1, replica.steps),
            better="lower",
        ),
        compared(
            "iterations_per_step",
            "model iterations that one planned step stands for",
            "iterations",
            replica.iterations / max(1, replica.steps),
            better="higher",
        ),
    ]


def _once(params: Params, path: Path) -> tuple[float, float, Assembly]:
    """Wall and processor seconds of one simulation, and what is left of it."""
    assembly = assemble(scenario(params, path), Path(), os.environ)
    begin, cpu = time.perf_counter(), time.process_time()
    assembly.simulation.run()
    took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    assembly.simulation.check_integrity()
    return took, cpu, assembly


def scenario(params: Params, path: Path) -> Scenario:
    """The scenario as `belady sim` would read it from a file."""
    workload = {"source": "mooncake", "path": str(path.absolute()), "limit": params.requests}
    return decode(
        {
            "name": "simspeed",
            "workload": {key: value for key, value in workload.items() if value is not None},
            "fleet": {"hardware": params.hardware, "devices": params.devices, "model": params.model},
            "core": {"page_size": 512, "key_tokens": 512},
            "policy": {"evict": {"name": params.evict}},
        }
    )
