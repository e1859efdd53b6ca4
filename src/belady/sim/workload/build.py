"""From the workload part of a scenario to a source of calls. Finds trace files; knows no fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from belady.sim.ranges import Count, Scale, Seconds, Tokens
from belady.sim.workload.base import Limits, Source, WorkloadError
from belady.sim.workload.synthetic import SyntheticConfig, synthetic
from belady.sim.workload.trace import azure, mooncake
from belady.sim.workload.weka import weka

DATA_VARIABLE = "BELADY_DATA"
_PREFIX = "$" + DATA_VARIABLE + "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadConfig:
    """Where calls come from. `path` may begin with `$BELADY_DATA/`; without that variable `fallback` is used.

    Relative paths are relative to the scenario file. Times are multiplied by `time_scale` (0.5: twice the load).
    """

    source: Literal["mooncake", "azure", "weka", "synthetic"]
    path: str | None = None
    fallback: str | None = None
    time_scale: Scale = 1.0
    limit: Count | None = None
    """Rows of an open-loop trace, or conversations."""
    max_tokens: Tokens | None = None
    """What clients ask for at most; by default all that the context leaves, as servers do."""
    clip: bool = False
    """Cut prompts that leave no room for their recorded output; by default the core refuses them."""
    concurrent: Count = 8
    """Conversations under way at a time (weka)."""
    stagger: Seconds = 60.0
    """The first conversations start within this many seconds (weka)."""
    next_use: bool = False
    """Tell the core when each prefix is next used (mooncake), for offline policies; `clairvoyant` implies it."""
    synthetic: SyntheticConfig | None = None

    def __post_init__(self) -> None:
        if self.source == "synthetic":
            _check(self.path is None, "path: a synthetic workload reads no file; remove it")
        else:
            _check(self.path is not None, f"path: the {self.source} source needs a trace file")
            _check(
                self.synthetic is None, f"synthetic: does not apply to the {self.source} source; remove it"
            )


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def locate(config: WorkloadConfig, folder: Path, environment: Mapping[str, str]) -> tuple[Path, str | None]:
    """The trace file, and a note when the fallback stands in for it. Raises `WorkloadError`."""
    assert config.path is not None
    name = config.path
    if not name.startswith(_PREFIX):
        return folder / name, None
    data = environment.get(DATA_VARIABLE)
    if data:
        return Path(data) / name.removeprefix(_PREFIX), None
    if config.fallback is None:
        raise WorkloadError(
            f"workload.path: {name} needs the variable {DATA_VARIABLE}, the folder of the traces; "
            "set it, or name an excerpt as workload.fallback"
        )
    note = f"{DATA_VARIABLE} is not set: the excerpt {config.fallback} stands in for {name}"
    return folder / config.fallback, note


def build(
    config: WorkloadConfig,
    path: Path | None,
    *,
    max_context: int,
    key_tokens: int,
    seed: int,
    clairvoyant: bool = False,
) -> Source:
    """The source, reading `path` where it needs a file. `clairvoyant`: calls carry their next use.

    Raises `WorkloadError` or `FormatError`.
    """
    limits = Limits(max_context=max_context, max_tokens=config.max_tokens, clip=config.clip)
    if clairvoyant and config.source != "mooncake":
        raise WorkloadError(
            f"policy.evict: next uses need the order of all requests and their content, which the {config.source} "
            "source does not have before it is run; use the mooncake source or a policy other than clairvoyant"
        )
    if config.source == "synthetic":
        shape = config.synthetic or SyntheticConfig()
        _check_keys(key_tokens)
        return synthetic(shape, limits, seed=seed, time_scale=config.time_scale)
    assert path is not None
    scale, count = config.time_scale, config.limit
    if config.source == "azure":
        return azure(path, limits, key_tokens=key_tokens, time_scale=scale, count=count)
    if config.source == "mooncake":
        return mooncake(
            path, limits, key_tokens=key_tokens, time_scale=scale, count=count, clairvoyant=clairvoyant
        )
    return weka(
        path,
        limits,
        concurrent=config.concurrent,
        stagger=config.stagger,
        seed=seed,
        time_scale=scale,
        count=count,
        key_tokens=key_tokens,
    )


def _check_keys(key_tokens: int) -> None:
    if key_tokens != 1:
        raise WorkloadError(f"core.key_tokens: synthetic prompts are token ids; use 1, not {key_tokens}")
