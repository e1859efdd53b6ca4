"""`belady doctor`: what this machine can do, and what is missing. Changes nothing."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from belady.models.fetch import DEFAULT_MODEL, cache_root, default_model_path

Status = Literal["ok", "note", "missing"]
STYLES = {"ok": "green", "note": "yellow", "missing": "red"}
SERVE_LIBRARIES = (
    "numpy", "tokenizers", "safetensors", "gguf", "huggingface-hub", "jinja2", "starlette", "uvicorn",
    "prometheus-client", "httpx",
)  # fmt: skip
CPU_FLAGS = ("avx2", "f16c", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
DEFAULT_PORT = 8000
MODEL_MEMORY = 1 << 30
"""Bytes that the default model with a small cache wants."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `missing` makes the exit code 1."""

    name: str
    status: Status
    text: str


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="say what this machine can do and what is missing")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    findings = examine()
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        for finding in findings:
            style = STYLES[finding.status]
            table.add_row(f"[{style}]{finding.status}[/{style}]", finding.name, finding.text)
        Console().print(table)
    return 1 if any(finding.status == "missing" for finding in findings) else 0


def examine() -> list[Finding]:
    """All findings. A check that itself fails is a note, never an error."""
    checks: Iterable[Callable[[], Finding]] = (
        python, system, cpu, memory, libraries, torch, default_model, disk, port,
    )  # fmt: skip
    return [_checked(check) for check in checks]


def _checked(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding(check.__name__, "note", f"could not be looked at: {error}")


def python() -> Finding:
    fine = sys.version_info >= (3, 11)
    text = f"{platform.python_version()} ({sys.executable})"
    return Finding(
        "python", "ok" if fine else "missing", text if fine else f"{text}; 3.11 or newer is needed"
    )


def system() -> Finding:
    text = f"{platform.system()} {platform.machine()}"
    tested = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    return Finding(
        "system", "ok" if tested else "note", text if tested else f"{text}; tested on Linux x86-64 only"
    )


def cpu() -> Finding:
    """Model, usable cores and the instruction sets that arithmetic profits from."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    info = _cpuinfo(Path("/proc/cpuinfo"))
    have = [flag for flag in CPU_FLAGS if flag in info.get("flags", "").split()]
    name = info.get("model name", platform.processor() or "unknown CPU")
    return Finding("cpu", "ok", f"{name}; {cores} usable cores; {' '.join(have) or 'no vector flags known'}")


def _cpuinfo(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def memory() -> Finding:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}
    free = sizes["MemAvailable"]
    text = f"{free / 1e9:.1f} GB free of {sizes['MemTotal'] / 1e9:.1f} GB"
    if free < MODEL_MEMORY:
        return Finding("memory", "note", f"{text}; the default model wants about {MODEL_MEMORY / 1e9:.0f} GB")
    return Finding("memory", "ok", text)


def libraries() -> Finding:
    absent = [name for name in SERVE_LIBRARIES if _version(name) is None]
    if absent:
        return Finding("libraries", "missing", f"{', '.join(absent)}: pip install 'belady[serve]'")
    return Finding("libraries", "ok", "everything that serving needs")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", "missing", "the reference backend needs it: pip install 'belady[torch]'")
    import torch as library

    if not library.cuda.is_available():
        return Finding("torch", "ok", f"{library.__version__}, CPU only (no CUDA device)")
    devices = [library.cuda.get_device_name(i) for i in range(library.cuda.device_count())]
    return Finding("torch", "ok", f"{library.__version__}, CUDA: {', '.join(devices)}")


def default_model() -> Finding:
    path = default_model_path()
    if path is None:
        return Finding(
            "model", "missing", f"{DEFAULT_MODEL.file_name} is not in the cache: run `belady fetch`"
        )
    return Finding("model", "ok", str(path))


def disk() -> Finding:
    root = cache_root()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:.1f} GB free for {root}"
    enough = free > 2 * DEFAULT_MODEL.size
    return Finding(
        "disk", "ok" if enough else "note", text if enough else f"{text}; set BELADY_CACHE to a larger disk"
    )


def port() -> Finding:
    from belady.api.server import ListenError, listen

    try:
        listen("127.0.0.1", DEFAULT_PORT).close()
    except ListenError as error:
        return Finding("port", "note", str(error))
    return Finding("port", "ok", f"{DEFAULT_PORT} is free")
