"""The one JSON schema of every experiment: what was claimed, what was measured beside what, and where.

It knows neither the machine nor the experiments: a driver fills `env`, `commit` and the results in. A field that does
not apply is `null`; a number that is not finite is refused, because JSON would turn it into a silent `null`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured quantity.

    metric         short stable name, e.g. "block_hit_10k"
    claim          the sentence that the number supports, e.g. "hit rate at 10,000 blocks equals the reference"
    unit           of `ours`, `baseline`, `bound` and `goal`: "s", "tokens/s", "%", ...
    ours           our value; null where this machine cannot run it
    baseline       the other side's value from the same run; baseline_name says whose
    ratio          ours / baseline as it stands, whichever direction is better
    bound          the limit that physics or an oracle sets
    goal           the value to reach; met says whether `ours` reaches it
    exact          true: outputs are identical to the baseline's; false: the quality cost is a result of its own
    """

    metric: str
    claim: str
    unit: str
    ours: float | None
    baseline: float | None = None
    baseline_name: str | None = None
    ratio: float | None = None
    bound: float | None = None
    goal: float | None = None
    met: bool | None = None
    exact: bool | None = None

    def __post_init__(self) -> None:
        for name in ("ours", "baseline", "ratio", "bound", "goal"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(
                    f"{self.metric}.{name} is {value}: give a finite number, or None where it does not apply"
                )
        if (self.baseline is None) != (self.baseline_name is None):
            raise ValueError(f"{self.metric}: baseline and baseline_name come together")
        if self.met is not None and self.goal is None:
            raise ValueError(f"{self.metric}: met compares with a goal, give one")


class BenchReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of one experiment.

    name      the experiment, as given to `belady bench`
    env       the machine and the versions that the driver found, by name
    commit    revision of the code, null outside a checkout
    params    everything that was chosen for this run, defaults included
    results   see `Result`
    """

    name: str
    env: dict[str, Any]
    commit: str | None
    params: dict[str, Any]
    results: list[Result]


def compared(
    metric: str,
    claim: str,
    unit: str,
    ours: float | None,
    *,
    better: Literal["lower", "higher"],
    baseline: float | None = None,
    baseline_name: str | None = None,
    bound: float | None = None,
    goal: float | None = None,
    exact: bool | None = None,
) -> Result:
    """A `Result` with `ratio` and `met` worked out; `better` says which side of `goal` reaches it.

    The ratio is null without a baseline or with one of 0; `met` is null without a goal, and false where there is a
    goal but no value of ours.
    """
    met: bool | None = None
    if goal is not None:
        met = ours is not None and (ours <= goal if better == "lower" else ours >= goal)
    ratio = ours / baseline if ours is not None and baseline else None
    return Result(
        metric=metric,
        claim=claim,
        unit=unit,
        ours=ours,
        baseline=baseline,
        baseline_name=baseline_name,
        ratio=ratio,
        bound=bound,
        goal=goal,
        met=met,
        exact=exact,
    )


def to_json(report: BenchReport) -> str:
    """Indented JSON with every field present."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def from_json(text: str | bytes) -> BenchReport:
    """Reads a report back; raises `msgspec.ValidationError` naming the field that does not fit."""
    return msgspec.json.decode(text, type=BenchReport)
