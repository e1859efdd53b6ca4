"""The command: one schema out, notes beside results, exit codes that tell failure from findings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from belady.bench.experiment import EXPERIMENTS, BenchError, UnknownExperimentError, experiment
from belady.bench.machine import fingerprint, revision
from belady.cli import bench
from belady.cli.main import main
from belady.report.bench_json import from_json


def test_json_on_stdout_is_only_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BELADY_DATA", raising=False)
    assert main(["bench", "prefix", "--quick", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    report = from_json(out)
    assert report.name == "prefix" and report.params["quick"] is True
    assert len(report.results) >= 4 and all(r.exact for r in report.results if r.baseline is not None)
    assert any("excerpt" in note for note in report.env["notes"])
    assert "block_hit_10000" in err


def test_json_to_a_file_and_the_table_on_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BELADY_DATA", raising=False)
    target = tmp_path / "evict.json"
    assert main(["bench", "evict", "--quick", "--json", str(target)]) == 0
    rows = {r.metric: r for r in from_json(target.read_bytes()).results}
    assert rows["hit_tokens_0.4x"].ours >= rows["hit_tokens_0.4x"].baseline > 0
    assert rows["hit_tokens_1x"].ours == rows["hit_tokens_1x"].bound
    assert "hit_tokens_0.4x" in capsys.readouterr().out


def test_an_experiment_that_cannot_run_says_why_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BELADY_DATA", str(tmp_path))
    assert main(["bench", "prefix"]) == 1
    assert "conversation_trace.jsonl does not exist" in capsys.readouterr().err


def test_a_missing_library_is_a_reason_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Needy:
        CLAIM = "needs what is not there"

        def params(self, quick: bool) -> object:
            from belady.bench.prefix import Params

            return Params()

        def run(self, params: object, note: object) -> list[object]:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(bench, "experiment", lambda name: Needy())
    assert main(["bench", "prefix"]) == 1
    assert "'torch' is not installed" in capsys.readouterr().err


def test_wrong_names_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "perfix"]) == 2
    assert "did you mean 'prefix'?" in capsys.readouterr().err
    assert main(["bench"]) == 2
    with pytest.raises(UnknownExperimentError):
        experiment("nothing")


def test_every_experiment_has_a_claim_and_two_sizes() -> None:
    for name in EXPERIMENTS:
        one = experiment(name)
        assert one.CLAIM and one.params(True) is not None and one.params(False) is not None


def test_listing_loads_no_heavy_library() -> None:
    code = (
        "import sys; from belady.cli.main import main; main(['bench', '--list']); "
        "heavy = {'numpy', 'torch', 'transformers', 'gguf'} & set(sys.modules); "
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in EXPERIMENTS)


def test_fingerprint_is_json_and_complete() -> None:
    env = json.loads(json.dumps(fingerprint("2026-01-01T00:00:00+00:00")))
    assert env["date"].startswith("2026-01-01")
    assert env["cores"] >= env["usable_cores"] >= 1 and env["memory_bytes"] > 2**20
    assert env["libraries"]["belady"] and env["libraries"]["msgspec"]


def test_revision_is_a_git_hash_or_nothing() -> None:
    commit = revision()
    assert commit is None or len(commit.removesuffix("-dirty")) == 40


def test_bench_error_is_ours() -> None:
    assert issubclass(BenchError, RuntimeError) and BenchError.__module__.startswith("belady.")
