"""`belady doctor`: findings and exit code."""

from __future__ import annotations

import argparse
import json

from belady.cli import doctor
from belady.cli.doctor import Finding


def test_reports_every_check_as_json(capsys):
    doctor.run(argparse.Namespace(json=True))
    names = [finding["name"] for finding in json.loads(capsys.readouterr().out)]
    assert names == ["python", "system", "cpu", "memory", "libraries", "torch", "model", "disk", "port"]


def test_exit_code_follows_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: [Finding("a", "ok", "x"), Finding("b", "note", "y")])
    assert doctor.run(argparse.Namespace(json=False)) == 0
    monkeypatch.setattr(
        doctor, "examine", lambda: [Finding("a", "ok", "x"), Finding("b", "missing", "get b")]
    )
    assert doctor.run(argparse.Namespace(json=False)) == 1
    assert "get b" in capsys.readouterr().out


def test_a_failing_check_is_a_note():
    def broken() -> Finding:
        raise OSError("no /proc here")

    assert doctor._checked(broken) == Finding("broken", "note", "could not be looked at: no /proc here")


def test_missing_model_and_libraries(monkeypatch, tmp_path):
    monkeypatch.setenv("BELADY_CACHE", str(tmp_path))
    assert doctor.default_model().status == "missing"
    assert "belady fetch" in doctor.default_model().text
    monkeypatch.setattr(doctor, "SERVE_LIBRARIES", ("msgspec", "no-such-library"))
    assert doctor.libraries().text == "no-such-library: pip install 'belady[serve]'"


def test_port_in_use_is_a_note(monkeypatch):
    from belady.api.server import listen

    with listen("127.0.0.1", 0) as sock:
        monkeypatch.setattr(doctor, "DEFAULT_PORT", sock.getsockname()[1])
        finding = doctor.port()
    assert finding.status == "note"
    assert "in use" in finding.text


def test_cpuinfo(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("model name\t: Some CPU\nflags\t: avx2 avx512_vnni x\n\nmodel name\t: Other\n")
    assert doctor._cpuinfo(file) == {"model name": "Some CPU", "flags": "avx2 avx512_vnni x"}
    assert doctor._cpuinfo(tmp_path / "none") == {}
