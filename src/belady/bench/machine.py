"""The fingerprint that stands beside every number: processor, memory, versions, load, revision of the code.

Reads the operating system; measures nothing. What cannot be found is `None`.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import belady

LIBRARIES = ("msgspec", "numpy", "torch", "transformers", "gguf", "tokenizers")


def fingerprint(date: str) -> dict[str, Any]:
    """Machine and versions by name. `date` is the caller's, ISO 8601; memory in bytes; load over the last minute."""
    return {
        "date": date,
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": _memory(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "libraries": {"belady": belady.__version__, **{name: _version(name) for name in LIBRARIES}},
    }


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def revision() -> str | None:
    """Git revision of the checkout that this code runs from, `-dirty` when tracked files differ; None elsewhere."""
    folder = Path(belady.__file__).parent
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit or not _git(folder, "ls-files", "--", "__init__.py"):
        return None  # no checkout, or installed below somebody else's
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
