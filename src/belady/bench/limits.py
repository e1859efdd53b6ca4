"""`limits`: what this machine's memory and arithmetic can do, the bound of every speed that is measured on it.

Bandwidth comes from reductions that need every loaded value, so that nothing can be left out; which reduction is fastest
differs by machine, and the fastest counts. Arithmetic is a matrix product in the shape of a layer (activations times
transposed weights) through torch, or numpy where torch is not installed (float32 only, its threads as configured). It
says what these libraries reach, which for a format that the processor lacks is far below what the machine could do.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from belady.bench.experiment import BenchError, Note
from belady.bench.machine import usable_cores
from belady.bench.timing import fastest
from belady.report.bench_json import Result, compared
from belady.sim.hardware import MEASURED, MEASURED_BANDWIDTH

CLAIM = "what memory and arithmetic of this machine reach, by working set and number format"
ONE_THREAD = "one thread"
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Working sets in MiB; the last one is the memory bandwidth that a simulation of this machine uses. `matrix`: side
    of the square matrices. A measurement stops after `seconds` or `repeats`, and its fastest repeat counts."""

    working_sets: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048)
    matrix: int = 1024
    repeats: int = 40
    seconds: float = 6.0


def params(quick: bool) -> Params:
    return Params(working_sets=(16, 128, 1024), matrix=512, repeats=20, seconds=1.5) if quick else Params()


def run(params: Params, note: Note) -> list[Result]:
    if not params.working_sets:
        raise BenchError("no working set to measure: name at least one size")
    library = next((lib for lib in ("torch", "numpy") if importlib.util.find_spec(lib)), None)
    if library is None:
        raise BenchError("neither torch nor numpy is installed: pip install 'belady[serve,torch]'")
    if library == "numpy":
        note("torch is not installed: numpy measures, float32 only, with the threads that its BLAS is set to")
        return [*_bandwidth(params, None, _numpy_probes), *_numpy_arithmetic(params)]
    import torch

    before = torch.get_num_threads()
    try:
        return [*_bandwidth(params, torch.set_num_threads, _torch_probes), *_torch_arithmetic(params)]
    finally:
        torch.set_num_threads(before)


SetThreads = Callable[[int], object]
Probes = Callable[[int], dict[str, Callable[[], object]]]
"""For a number of bytes: ways to read an array of that size in full, by name."""


def _bandwidth(params: Params, set_threads: SetThreads | None, probes: Probes) -> list[Result]:
    """Read bandwidth by working set; the largest set once more as the machine's."""
    results = []
    for size in params.working_sets:
        ways = probes(size * MEGABYTE)
        budget = params.seconds / len(ways)
        found = {name: _by_threads(way, params.repeats, budget, set_threads) for name, way in ways.items()}
        best = min(found, key=lambda name: min(found[name].values()))
        rates = {threads: size * MEGABYTE / took / 1e9 for threads, took in found[best].items()}
        claim = f"read bandwidth over {size} MiB, every value summed (fastest: {best})"
        results.append(_scaled(f"read_bandwidth_{size}mib", claim, "GB/s", rates))
    claim = f"read bandwidth from memory: that of the largest working set, {params.working_sets[-1]} MiB"
    return [*results, msgspec.structs.replace(results[-1], metric=MEASURED_BANDWIDTH, claim=claim)]


def _by_threads(
    work: Callable[[], object], repeats: int, budget: float, set_threads: SetThreads | None
) -> dict[int, float]:
    """Least seconds of `work` by number of threads: one and all, or 0 for as many as the library is set to."""
    if set_threads is None:
        return {0: fastest(work, repeats, budget)}
    counts = sorted({1, usable_cores()})
    took = {}
    for threads in counts:
        set_threads(threads)
        took[threads] = fastest(work, repeats, budget / len(counts))
    return took


def _scaled(metric: str, claim: str, unit: str, rates: dict[int, float]) -> Result:
    """The best rate beside that of one thread. More threads may be slower where others use the machine."""
    best = max(rates, key=lambda threads: rates[threads])
    on = {0: "the library's threads", 1: ONE_THREAD}.get(best, f"{best} threads")
    return compared(
        metric,
        f"{claim}, on {on}",
        unit,
        rates[best],
        better="higher",
        baseline=rates.get(1),
        baseline_name=ONE_THREAD if 1 in rates else None,
    )


def _torch_probes(size: int) -> dict[str, Callable[[], object]]:
    import torch

    whole = torch.ones(size // 8, dtype=torch.int64)
    single = whole.view(torch.float32)  # ones and zeros in another type: sums stay finite
    return {"torch int64 sum": whole.sum, "torch float32 sum": single.sum}


def _numpy_probes(size: int) -> dict[str, Callable[[], object]]:
    import numpy as np

    whole = np.ones(size // 8, dtype=np.int64)
    single = whole.view(np.float32)
    return {"numpy int64 sum": whole.sum, "numpy float32 dot": lambda: np.dot(single, single)}


def _torch_arithmetic(params: Params) -> list[Result]:
    """Products per second by format: activations [n, n] times the transpose of weights [n, n]."""
    import torch
    from torch.nn import functional

    n = params.matrix
    products: dict[str, Callable[[], object]] = {}
    for name in ("float32", "float16", "bfloat16"):
        dtype = getattr(torch, name)
        x, w = torch.ones(n, n, dtype=dtype), torch.ones(n, n, dtype=dtype)
        products[name] = lambda x=x, w=w: functional.linear(x, w)  # type: ignore[misc]
    x8 = torch.ones(n, n, dtype=torch.int8)
    w8 = torch.ones(n, n, dtype=torch.int8)
    products["int8"] = lambda: torch._int_mm(x8, w8.t())
    results = []
    for metric, name in MEASURED.items():
        how = "torch._int_mm" if name == "int8" else "torch linear"
        unit = "GOP/s" if name == "int8" else "GFLOP/s"
        claim = f"{name} products of {n} x {n} matrices ({how})"
        results.append(_scaled(metric, claim, unit, _rates(products[name], params, torch.set_num_threads)))
    return results


def _numpy_arithmetic(params: Params) -> list[Result]:
    import numpy as np

    n = params.matrix
    x, w = np.ones((n, n), np.float32), np.ones((n, n), np.float32)
    metric = next(m for m, name in MEASURED.items() if name == "float32")
    claim = f"float32 products of {n} x {n} matrices (numpy)"
    return [_scaled(metric, claim, "GFLOP/s", _rates(lambda: x @ w.T, params, None))]


def _rates(product: Callable[[], object], params: Params, set_threads: SetThreads | None) -> dict[int, float]:
    """Billions of multiplications and additions per second, by number of threads."""
    found = _by_threads(product, params.repeats, params.seconds, set_threads)
    return {threads: 2 * params.matrix**3 / took / 1e9 for threads, took in found.items()}
