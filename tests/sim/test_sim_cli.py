"""`belady sim` on the shipped examples: table, bytes, page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from belady.cli.main import main
from belady.sim.loop import Simulation
from belady.sim.record import LivelockError

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "agents": ["--set", "workload.synthetic.sessions=12"],
    "mooncake": ["--set", "workload.limit=60"],
    "azure": ["--set", "workload.limit=60"],
    "weka": ["--set", "workload.limit=4"],
}


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BELADY_DATA", raising=False)
    monkeypatch.setenv("BELADY_CACHE", str(tmp_path / "cache"))


def run(name: str, *more: str) -> int:
    return main(["sim", str(EXAMPLES / f"{name}.toml"), *SMALL[name], *more])


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.toml")))
def test_examples_run_in_a_clean_clone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name) == 0
    text = capsys.readouterr().out
    for row in ("requests", "TTFT", "TPOT", "E2E", "token hit rate", "uncached prompt tokens", "busy share"):
        assert row in text
    if name != "agents":
        assert "BELADY_DATA is not set: the excerpt" in text
    result = json.loads(Path(f"out/{name}.json").read_bytes())
    assert result["arrived"] == result["finished"] + result["refused"] > 0
    assert result["ttft"]["p50"] <= result["ttft"]["p99"] <= result["e2e"]["max"]
    assert 0 < result["busy_share"] <= 1
    page = Path(f"out/{name}.html").read_text()
    assert page.count("<svg") >= 4 and "http-equiv" in page and "<script" not in page


def test_one_seed_one_file_byte_for_byte(tmp_path: Path) -> None:
    for target in ("a.json", "b.json"):
        assert run("agents", "--json", target, "--html", f"{target}.html", "--seed", "3") == 0
    assert run("agents", "--json", "c.json", "--seed", "4") == 0
    a, b, c = (Path(f"{n}.json").read_bytes() for n in "abc")
    assert a == b != c
    assert Path("a.json.html").read_bytes() == Path("b.json.html").read_bytes()


def test_standard_output_may_be_json_alone(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("agents", "--json", "-") == 0
    out, err = capfdbinary.readouterr()
    assert json.loads(out)["name"] == "agents"
    assert b"TTFT" in err


def test_affinity_beats_round_robin_where_prefixes_are_private() -> None:
    rates = []
    for router in ("prefix_affinity", "round_robin"):
        assert run("agents", "--json", f"{router}.json", "--set", f"policy.route.name={router}") == 0
        rates.append(json.loads(Path(f"{router}.json").read_bytes())["token_hit_rate"])
    assert rates[0] > rates[1]


def test_a_mistake_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("agents", "--set", "core.page_sise=3") == 2
    err = capsys.readouterr().err
    assert "did you mean 'page_size'" in err and "Traceback" not in err


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_an_output_that_cannot_be_written_ends_the_run_before_it_begins(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("simulated all the same")

    monkeypatch.setattr(Simulation, "run", forbidden)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    for target in ("file/x", "folder", "/proc/x"):
        assert run("agents", option, target) == 2
        assert f"{option} {target}: " in capsys.readouterr().err
    assert run("agents", "--html", "same", "--json", str(tmp_path / "same")) == 2
    assert "both name" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["file"], "nothing is left behind"


def test_an_output_may_be_there_already_and_its_folder_missing(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    assert run("agents", "--json", "old.json", "--html", "new/page.html") == 0
    assert json.loads((tmp_path / "old.json").read_bytes())["name"] == "agents"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["page.html"]


def test_a_device_is_not_replaced_by_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("agents", "--html", "/dev/null") == 2
    assert "not a regular file" in capsys.readouterr().err
    assert run("agents", "--json", "/dev/null") == 0
    assert Path("/dev/null").is_char_device()


def test_a_run_that_gets_nowhere_is_a_failure_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stuck(*_: object) -> None:
        raise LivelockError("request 3 was preempted")

    monkeypatch.setattr(Simulation, "run", stuck)
    assert run("agents") == 1
    assert capsys.readouterr().err.endswith("belady: request 3 was preempted\n")
