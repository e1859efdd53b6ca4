"""A result for people: the rows of the terminal's table and a self-contained HTML page. Computes nothing new."""

from __future__ import annotations

from belady.report.axis import Axis, humanize
from belady.report.html import KeyFigure, Report
from belady.report.svg import Series, Svg, bar_chart, cdf_plot, line_plot
from belady.report.table import Cell
from belady.sim.result import Latencies, SimResult, Spread

COLUMNS = ("metric", "value", "p50", "p90", "p99", "max")


def rows(result: SimResult) -> list[list[Cell]]:
    """The table: counts and rates in `value`, latencies by quantile in seconds."""
    return [
        *_counts(result),
        _spread("TTFT (s)", result.ttft),
        _spread("TPOT (s)", result.tpot),
        _spread("E2E (s)", result.e2e),
        _spread("queue (s)", result.queue),
        _spread("uncached prompt tokens", result.uncached_tokens),
        ["throughput (requests/s)", result.requests_per_second, *_NONE],
        ["prompt tokens/s", result.prompt_tokens_per_second, *_NONE],
        ["output tokens/s", result.output_tokens_per_second, *_NONE],
        ["token hit rate (%)", 100 * result.token_hit_rate, *_NONE],
        ["evictions", result.evictions, *_NONE],
        ["evicted tokens", result.evicted_tokens, *_NONE],
        ["preemptions", result.preemptions, *_NONE],
        ["busy share (%)", 100 * result.busy_share, *_NONE],
    ]


_NONE: tuple[Cell, ...] = (None, None, None, None)


def _counts(result: SimResult) -> list[list[Cell]]:
    out: list[list[Cell]] = [["requests", result.arrived, *_NONE], ["finished", result.finished, *_NONE]]
    for name in ("refused", "aborted", "in_flight"):
        if getattr(result, name):
            out.append([name.replace("_", " "), getattr(result, name), *_NONE])
    return [*out, ["simulated time (s)", result.seconds, *_NONE]]


def _spread(name: str, spread: Spread) -> list[Cell]:
    return [name, None, spread.p50, spread.p90, spread.p99, spread.max]


def notes(result: SimResult) -> list[str]:
    """What a reader must know beside the numbers: sources, stand-ins, refusals, losses."""
    resolved = result.resolved
    out = [
        f"{result.scenario.fleet.replicas} x {resolved['model']} on {result.scenario.fleet.devices} x "
        f"{resolved['device']}; KV cache of {resolved['cache_tokens']:,} tokens each",
        *result.notes,
    ]
    out += [f"refused ({reason}), for example: {detail}" for reason, detail in result.refusals.items()]
    if result.losses:
        lost = ", ".join(f"{reason} {tokens:,}" for reason, tokens in result.losses.items())
        out.append(f"matched or formerly cached tokens that were computed again: {lost}")
    return out


def page(result: SimResult, found: Latencies) -> Report:
    """The whole report."""
    report = Report(
        result.scenario.title or result.name,
        "Simulated by Belady: the serving scheduler itself, in virtual time.",
    )
    report.figures(
        [
            KeyFigure("requests finished", f"{result.finished:,}", f"of {result.arrived:,}"),
            KeyFigure("TTFT p50 / p99", f"{_seconds(result.ttft.p50)} / {_seconds(result.ttft.p99)}"),
            KeyFigure("TPOT p50 / p99", f"{_seconds(result.tpot.p50)} / {_seconds(result.tpot.p99)}"),
            KeyFigure("token hit rate", f"{100 * result.token_hit_rate:.1f} %", "of prompt tokens"),
            KeyFigure("output", f"{humanize(result.output_tokens_per_second)} tokens/s"),
            KeyFigure("busy", f"{100 * result.busy_share:.1f} %", "mean over replicas"),
        ]
    )
    for note in notes(result):
        report.text(note)
    report.heading("Over time")
    report.plots(*_timeline(result))
    report.heading("Latency")
    report.plots(*_distributions(found))
    report.table("All figures", COLUMNS, rows(result))
    if len(result.replicas) > 1:
        report.heading("Replicas")
        report.plots(_per_replica(result))
    report.text(
        f"Device figures: {result.resolved['device_source']}. Model: {result.resolved['model_source']}."
    )
    report.config("Scenario", result.scenario)
    return report


def _seconds(value: float | None) -> str:
    return "–" if value is None else humanize(value, "s")


def _timeline(result: SimResult) -> list[Svg | tuple[Svg, str]]:
    line = result.timeline
    time = Axis(label="virtual time", unit="s")
    return [
        line_plot(
            "Requests",
            [
                Series(name="running", x=line.at, y=line.running),
                Series(name="waiting", x=line.at, y=line.waiting),
            ],
            time,
            Axis(label="requests"),
            step=True,
        ),
        (
            line_plot(
                "KV cache",
                [
                    Series(name="in use or cached", x=line.at, y=[100 * share for share in line.kv_usage]),
                    Series(name="cached", x=line.at, y=_cached_share(result)),
                ],
                time,
                Axis(label="share of pages", unit="%", low=0, high=100),
                step=True,
            ),
            "Pages held by running requests or by the prefix tree, and those of the prefix tree alone.",
        ),
    ]


def _cached_share(result: SimResult) -> list[float]:
    tokens = result.resolved["cache_tokens"]
    assert isinstance(tokens, int)
    room = tokens * result.scenario.fleet.replicas
    return [100 * cached / room for cached in result.timeline.cached_tokens]


def _distributions(found: Latencies) -> list[Svg]:
    time = Axis(label="seconds", unit="s", log=True)
    return [
        cdf_plot("Time to first token and end to end", {"TTFT": found.ttft, "E2E": found.e2e}, time),
        cdf_plot("Time per output token", {"TPOT": found.tpot}, Axis(label="per token", unit="s")),
    ]


def _per_replica(result: SimResult) -> Svg:
    names = [f"replica {i}" for i in range(len(result.replicas))]
    groups = {
        "busy": [100 * r.busy_share for r in result.replicas],
        "token hit rate": [100 * r.token_hit_rate for r in result.replicas],
    }
    return bar_chart("Per replica", names, groups, Axis(label="share", unit="%", low=0, high=100))
