from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from examples.demo import build_model
from foretell.calibrate import calibrate_host as module
from foretell.cli.main import main


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(module, "CACHES_OF_MEMORY", 0)
    monkeypatch.setattr(module, "RUN_CYCLES", 1 << 14)


def test_a_measured_file_is_a_target(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["calibrate", "--seconds", "0.1", "--threads", "1", "-o", "here.toml", "--json", "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] and facts["file"] == "here.toml"
    assert {"what", "known", "measured", "unit", "field"} == facts["figures"][0].keys()

    assert main(["targets", "here.toml", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["cores"] == 1 and shown["frequency_hz"] == facts["spec"]["frequency_hz"]

    onnx.save(build_model(), tmp_path / "demo.onnx")
    assert main(["compile", "demo.onnx", "--target", "here.toml", "-q"]) == 0
    assert main(["run", "demo.foretell", "-q"]) == 0


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--seconds", "0.1", "--threads", "1", "-q"]) == 0
    text = capsys.readouterr().out
    assert "multiply-adds" in text and "memory, one core" in text
    written = text.splitlines()[-1].split()[-1]
    assert Path(written).is_file()
    assert main(["targets", written]) == 0
    assert "fma_ports" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["-o", "here.json"], "the measurements cannot be written there"),
        (["-o", "missing/here.toml"], "the measurements cannot be written there"),
        (["--threads", "1024"], "there are not that many cores to measure"),
        (["--seconds", "0"], "Invalid value for '--seconds'"),
    ],
)
def test_a_wrong_command_line_is_three_lines(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"FT001: {what}") and len(lines) == 3


def test_a_place_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder.toml").mkdir()
    assert main(["calibrate", "--seconds", "0.1", "--threads", "1", "-o", "folder.toml", "-q"]) == 2
    assert "FT001: the measurements cannot be written (at folder.toml)" in capsys.readouterr().err
