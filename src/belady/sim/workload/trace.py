"""Open-loop replay of Mooncake and Azure traces: every call arrives when it was recorded, scaled, whatever happens."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from belady.core.paritylog import Output
from belady.core.request import Request
from belady.formats import read_azure, read_mooncake
from belady.sim.workload.base import Call, Limits
from belady.sim.workload.future import next_uses


class OpenLoop:
    """A list of calls in time order; nothing follows from anything."""

    def __init__(self, calls: Sequence[Call], limits: Limits, notes: Sequence[str] = ()) -> None:
        self._calls = calls
        self._limits = limits
        self._notes = list(notes)

    @property
    def total(self) -> int | None:
        return len(self._calls)

    def initial(self) -> Iterator[Call]:
        return iter(self._calls)

    def ended(self, rid: int, now: float) -> Sequence[Call]:
        return ()

    def notes(self) -> list[str]:
        return self._notes + self._limits.notes()


def mooncake(
    path: Path, limits: Limits, *, key_tokens: int, time_scale: float, count: int | None, clairvoyant: bool
) -> OpenLoop:
    """Requests of a Mooncake file, `key_tokens` tokens per block id; with `clairvoyant`, each knows its next use."""
    calls = []
    for rid, row in enumerate(islice(read_mooncake(path, block_tokens=key_tokens), count)):
        prompt, most, output = limits.fit(row.input_length, row.output_length)
        request = Request(
            rid=rid,
            prompt=array("i", row.hash_ids[: -(-prompt // key_tokens)]).tobytes(),
            prompt_tokens=prompt,
            max_tokens=most,
            key_tokens=key_tokens,
        )
        calls.append(Call(row.timestamp / 1000 * time_scale, request, Output(length=output)))
    return OpenLoop(_foreseen(calls) if clairvoyant else calls, limits)


def azure(path: Path, limits: Limits, *, key_tokens: int, time_scale: float, count: int | None) -> OpenLoop:
    """Requests of an Azure file. They carry no content, so none shares a prefix with another."""
    calls = []
    for rid, row in enumerate(islice(read_azure(path), count)):
        prompt, most, output = limits.fit(row.context_tokens, row.generated_tokens)
        request = Request(rid=rid, prompt=b"", prompt_tokens=prompt, max_tokens=most, key_tokens=key_tokens)
        calls.append(Call(row.at * time_scale, request, Output(length=output)))
    return OpenLoop(calls, limits, ["the trace has no content identity: no prefix is shared"])


def _foreseen(calls: Sequence[Call]) -> list[Call]:
    uses = next_uses((call.request.namespace, call.request.prompt) for call in calls)
    return [
        Call(call.at, replace(call.request, reuse=reuse), call.output)
        for call, reuse in zip(calls, uses, strict=True)
    ]
