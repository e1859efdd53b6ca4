"""The numbers of a finished run, from its records alone: one plain structure that tables, JSON and pages show.

Holds no wall-clock time and nothing of the machine, so that equal scenarios give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from belady.report.quantile import nearest_rank
from belady.sim.assemble import Assembly
from belady.sim.record import RequestRecord, Samples
from belady.sim.scenario import Scenario

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Nearest-rank quantiles of one quantity; all None where nothing was measured."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaResult:
    """One replica: requests routed to it, steps planned, decode iterations run, share of the run spent computing."""

    requests: int
    steps: int
    iterations: int
    busy_share: float
    token_hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Fleet states, thinned: seconds, requests, mean used share of the KV pools, tokens cached."""

    at: Sequence[float]
    running: Sequence[int]
    waiting: Sequence[int]
    kv_usage: Sequence[float]
    cached_tokens: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """Times in seconds of virtual time, from the arrival at the API to the end of server compute.

    TPOT = (end - first token) / (output tokens - 1), for answers of two tokens or more. Hit rate = prompt tokens not
    computed again / prompt tokens, over finished requests. Arrived = finished + refused + aborted + in flight.
    """

    name: str
    scenario: Scenario
    resolved: dict[str, str | int | float]
    notes: Sequence[str]
    arrived: int
    finished: int
    refused: int
    aborted: int
    in_flight: int
    refusals: dict[str, str]
    seconds: float
    ttft: Spread
    tpot: Spread
    e2e: Spread
    queue: Spread
    uncached_tokens: Spread
    requests_per_second: float
    prompt_tokens_per_second: float
    output_tokens_per_second: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    token_hit_rate: float
    losses: dict[str, int]
    evictions: int
    evicted_tokens: int
    preemptions: int
    preempted_tokens: int
    busy_share: float
    replicas: Sequence[ReplicaResult]
    timeline: Timeline


def spread(values: Sequence[float]) -> Spread:
    """Quantiles of `values`."""
    if not values:
        return Spread(count=0)
    ordered = sorted(values)
    quantiles = {name: nearest_rank(ordered, p) for name, p in QUANTILES}
    return Spread(count=len(ordered), mean=math.fsum(ordered) / len(ordered), max=ordered[-1], **quantiles)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Samples per quantity, for distributions."""

    ttft: list[float]
    tpot: list[float]
    e2e: list[float]
    queue: list[float]


def latencies(records: Sequence[RequestRecord]) -> Latencies:
    """Of finished requests."""
    found = Latencies([], [], [], [])
    for r in records:
        if r.outcome != "finished":
            continue
        assert r.scheduled is not None and r.first_token is not None and r.ended is not None
        assert r.arrived <= r.scheduled <= r.first_token <= r.ended, "a request's times are out of order"
        found.queue.append(r.scheduled - r.arrived)
        found.ttft.append(r.first_token - r.arrived)
        found.e2e.append(r.ended - r.arrived)
        if r.output_tokens > 1:
            found.tpot.append((r.ended - r.first_token) / (r.output_tokens - 1))
    return found


def summarise(scenario: Scenario, assembly: Assembly) -> SimResult:
    """The result of a simulation that has run."""
    simulation = assembly.simulation
    recorder = simulation.recorder
    records = list(recorder.requests.values())
    done = [r for r in records if r.outcome == "finished"]
    found = latencies(records)
    begin = min((r.arrived for r in records), default=0.0)
    seconds = simulation.now - begin
    prompt, cached = sum(r.prompt_tokens for r in done), sum(r.cached_tokens for r in done)
    output = sum(r.output_tokens for r in done)
    count = _counter(records)
    per_second = 1 / seconds if seconds else 0.0
    replicas = _replicas(assembly, done, per_second)
    return SimResult(
        name=scenario.name,
        scenario=scenario,
        resolved=_resolved(assembly),
        notes=[*assembly.notes, *assembly.source.notes()],
        arrived=len(records),
        finished=count("finished"),
        refused=count("refused"),
        aborted=count("abort") + count("error"),
        in_flight=count("in_flight"),
        refusals=dict(sorted(recorder.refusals.items())),
        seconds=seconds,
        ttft=spread(found.ttft),
        tpot=spread(found.tpot),
        e2e=spread(found.e2e),
        queue=spread(found.queue),
        uncached_tokens=spread([float(r.prompt_tokens - r.cached_tokens) for r in done]),
        requests_per_second=len(done) * per_second,
        prompt_tokens_per_second=prompt * per_second,
        output_tokens_per_second=output * per_second,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        token_hit_rate=cached / prompt if prompt else 0.0,
        losses=dict(sorted(recorder.losses.items())),
        evictions=recorder.counts["evictions"],
        evicted_tokens=recorder.counts["evicted_tokens"],
        preemptions=recorder.counts["preemptions"],
        preempted_tokens=recorder.counts["preempted_tokens"],
        busy_share=math.fsum(r.busy_share for r in replicas) / len(replicas),
        replicas=replicas,
        timeline=_timeline(recorder.samples),
    )


def to_json(result: SimResult) -> bytes:
    """Indented JSON; equal results give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def _counter(records: Sequence[RequestRecord]) -> Callable[[str], int]:
    outcomes = [r.outcome for r in records]
    return outcomes.count


def _replicas(assembly: Assembly, done: Sequence[RequestRecord], per_second: float) -> list[ReplicaResult]:
    count = len(assembly.simulation.servers)
    requests, prompts, cached = [0] * count, [0] * count, [0] * count
    for record in assembly.simulation.recorder.requests.values():
        requests[record.replica] += 1
    for record in done:
        prompts[record.replica] += record.prompt_tokens
        cached[record.replica] += record.cached_tokens
    return [
        ReplicaResult(
            requests=requests[i],
            steps=server.replica.steps,
            iterations=server.replica.iterations,
            busy_share=server.replica.busy_seconds * per_second,
            token_hit_rate=cached[i] / prompts[i] if prompts[i] else 0.0,
        )
        for i, server in enumerate(assembly.simulation.servers)
    ]


def _resolved(assembly: Assembly) -> dict[str, str | int | float]:
    core, device, network = assembly.core, assembly.device, assembly.model
    return {
        "device": device.title,
        "device_source": device.source,
        "model": network.name,
        "model_source": network.source,
        "parameters": network.parameters,
        "kv_bytes_per_token": sum(group.bytes_per_token for group in core.groups),
        "cache_tokens": core.groups[0].pages * core.page_size,
        "max_context": core.max_context,
    }


def _timeline(samples: Samples) -> Timeline:
    return Timeline(
        at=samples.at,
        running=samples.running,
        waiting=samples.waiting,
        kv_usage=samples.usage,
        cached_tokens=samples.cached_tokens,
    )
