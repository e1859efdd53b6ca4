"""An environment of its own for each peer: made by pip once, kept, and made anew when its recipe changes.

Knows Python's venv and pip; does not know what a peer does. The network is pip's affair: index, proxy and certificates
that a user configured hold here, and `BELADY_PEERS_PIP` adds options to every `pip install`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from belady.models.fetch import cache_root

PIP_OPTIONS = "BELADY_PEERS_PIP"
"""Variable: options for every `pip install`, as in a shell."""
FOLDER = "BELADY_PEERS"
"""Variable: the folder of the environments (default: `peers` in the cache folder)."""
STAMP = "recipe.json"


class PeerError(RuntimeError):
    """A peer that cannot take part; the message is the one line that the report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make an environment. `steps`: requirements of each `pip install`, in order, since a pin must be in place
    before what depends on it is resolved. `remove`: what is uninstalled at the end because it breaks an import."""

    steps: tuple[tuple[str, ...], ...]
    remove: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    def stamp(self) -> str:
        """What must be equal for an environment to be used again."""
        version = ".".join(map(str, sys.version_info[:2]))
        return json.dumps(
            {"steps": self.steps, "remove": self.remove, "environ": dict(self.environ), "python": version},
            indent=1,
        )


def peers_root(environ: Mapping[str, str] | None = None) -> Path:
    """Where the environments and the model forms are kept. Creates nothing."""
    env = os.environ if environ is None else environ
    chosen = env.get(FOLDER)
    return Path(chosen).expanduser() if chosen else cache_root(env) / "peers"


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def is_ready(folder: Path, recipe: Recipe) -> bool:
    """Whether the environment was finished by this very recipe."""
    try:
        return python_of(folder).exists() and (folder / STAMP).read_text() == recipe.stamp()
    except OSError:
        return False


def ensure(folder: Path, recipe: Recipe, log: Path) -> Path:
    """Python of the environment in `folder`, made now where it is not there or made by another recipe.

    What pip says goes to `log`. Raises `PeerError` with pip's last error line.
    """
    if is_ready(folder, recipe):
        return python_of(folder)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        run_logged([sys.executable, "-m", "venv", str(folder)], log, "the environment can't be made")
        python = str(python_of(folder))
        options = shlex.split(os.environ.get(PIP_OPTIONS, ""))
        for step in recipe.steps:
            command = [python, "-m", "pip", "install", "--no-input", *options, *step]
            run_logged(command, log, "pip can't install it", recipe.environ)
        if recipe.remove:
            run_logged([python, "-m", "pip", "uninstall", "-y", *recipe.remove], log, "pip can't uninstall")
        (folder / STAMP).write_text(recipe.stamp())
    except OSError as error:
        raise PeerError(f"{folder} can't be written ({error.strerror or error}); set {FOLDER}") from error
    return python_of(folder)


def run_logged(
    command: list[str],
    log: Path,
    what: str,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run to the end with all output appended to `log`; raises `PeerError` (`what`, the telling line) on failure."""
    with log.open("a", errors="replace") as sink:
        begin = sink.tell()
        sink.write(f"$ {shlex.join(command)}\n")
        sink.flush()
        done = subprocess.run(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environ or {})},
            cwd=cwd,
            check=False,
        )
    if done.returncode:
        raise PeerError(f"{what}: {telling_line(log.read_text(errors='replace')[begin:])} (log: {log})")


def telling_line(output: str) -> str:
    """The line that names the cause: the last one that reports an error, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("$ ")]
    errors = [line for line in lines if "error" in line.lower()]
    chosen = (errors or lines or ["no output"])[-1]
    return chosen if len(chosen) <= 200 else f"{chosen[:197]}..."
