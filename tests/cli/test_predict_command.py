from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from examples.demo import build_model
from foretell.cli.main import main


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(build_model(), tmp_path / "demo.onnx")
    return str(tmp_path / "demo.onnx")


@pytest.mark.parametrize("target", ["native", "neoverse-n1"])
def test_every_kernel_has_a_time(model: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", model, "--target", target, "--threads", "1", "--json", "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] and facts["threads"] == 1 and facts["not_native"] == []
    assert facts["low_s"] < facts["seconds"] < facts["high_s"]
    assert facts["seconds"] == pytest.approx(sum(kernel["count"] * kernel["seconds"] for kernel in facts["kernels"]))
    for kernel in facts["kernels"]:
        assert kernel["binds"] in kernel["terms_s"] and kernel["low_s"] < kernel["seconds"] < kernel["high_s"]
        assert kernel["low_s"] <= kernel["draft_s"] <= kernel["high_s"]


def test_the_table(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", model, "--target", "znver3", "--threads", "2", "-q"]) == 0
    text = capsys.readouterr().out
    assert "of the roofline" in text and "four times in five, on 2 threads of" in text


def test_unknown_target(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", model, "--target", "nosuchcpu", "-q"]) == 2
    assert "nosuchcpu" in capsys.readouterr().err
