"""A measured process: started, stopped while others have their turn, weighed, and ended with all that it started.

Knows processes, JSON lines and /proc; not what an engine is.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belady.bench.peers.environment import PeerError, telling_line

HOST = Path(__file__).parent / "workers" / "host.py"
LOAD_SECONDS = 600.0
CALL_SECONDS = 300.0


class Process:
    """One engine's process group. `started` is the moment of the command; what it says on standard error goes to `log`."""

    def __init__(self, command: list[str], environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self.started = time.perf_counter()
        with log.open("w") as sink:
            try:
                self.popen = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=sink,
                    env={**os.environ, **environ},
                    start_new_session=True,
                )
            except OSError as error:
                raise PeerError(f"{command[0]} can't be started: {error.strerror}") from error

    def pause(self) -> None:
        """Take the processor away, so that nothing of it disturbs the others' turn."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the whole group. Idempotent."""
        self._signal(signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()

    def died(self) -> PeerError:
        """What the log says about an end that nobody asked for."""
        try:
            code = self.popen.wait(5)
        except subprocess.TimeoutExpired:
            return PeerError(f"it stopped answering (log: {self._log})")
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = telling_line(self._log.read_text(errors="replace"))
        return PeerError(f"it ended with {how}: {last} (log: {self._log})")

    def memory(self) -> tuple[float, float]:
        """Resident bytes now and at their highest, of the process and all below it."""
        found = [memory_of(pid) for pid in descendants(self.popen.pid)]
        return sum(now for now, _ in found), sum(peak for _, peak in found)

    def processor_seconds(self) -> float:
        """Processor time used so far by the process and all below it."""
        return sum(processor_seconds_of(pid) for pid in descendants(self.popen.pid))

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)


class Worker(Process):
    """A process that runs `workers/host.py`: one request, one reply."""

    def __init__(self, python: Path, module: str, environ: Mapping[str, str], log: Path) -> None:
        super().__init__([str(python), str(HOST), module], environ, log)
        self._buffer = b""

    def load(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What the engine says about itself."""
        return self._call({"op": "load", "settings": settings}, LOAD_SECONDS)

    def generate(self, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[list[float]]]:
        """Ids of each row, and seconds from the call until each was there."""
        reply = self._call({"op": "generate", "prompts": prompts, "tokens": tokens}, CALL_SECONDS)
        ids, times = reply["ids"], reply["times"]
        if [len(row) for row in ids] != [tokens] * len(prompts):
            raise PeerError(f"{tokens} tokens were asked for, {[len(row) for row in ids]} came")
        return ids, times

    def _call(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(json.dumps(request).encode() + b"\n")
            self.popen.stdin.flush()
        except OSError as error:
            raise self.died() from error
        line = self._line(time.monotonic() + seconds)
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise PeerError(f"it answered no JSON: {line[:80]!r}") from error
        if not reply.get("ok"):
            raise PeerError(str(reply.get("error", "it failed and did not say why")))
        return dict(reply)

    def _line(self, deadline: float) -> bytes:
        assert self.popen.stdout is not None
        descriptor = self.popen.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise PeerError("it did not answer in time")
                chunk = os.read(descriptor, 1 << 20)
                if not chunk:
                    raise self.died()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def descendants(root: int) -> list[int]:
    """`root` and all processes below it that are alive."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root] if root in parents else []
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def memory_of(pid: int) -> tuple[float, float]:
    """Resident bytes of one process, now and at most; zeros where it has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    now, peak = (float(fields[name][0]) * 1024 if name in fields else 0.0 for name in ("VmRSS", "VmHWM"))
    return now, peak


def processor_seconds_of(pid: int) -> float:
    """User and system time of one process and the ended ones below it; zero where it has gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    values = stat.rpartition(")")[2].split()
    return sum(map(int, values[11:15])) / os.sysconf("SC_CLK_TCK")
