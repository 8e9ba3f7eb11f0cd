"""The commands end to end, on the demo's model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest

from examples.demo import build_model
from foretell.cli.main import main


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(build_model(), tmp_path / "demo.onnx")
    return str(tmp_path / "demo.onnx")


def test_check(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["model"], facts["flops"]) == (True, "demo.onnx", None)
    assert main(["check", model, "--shape", "image=4x3x32x32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flops"] == 4 * facts["flops_sample"]["flops"]


def test_check_in_a_pipe_is_plain_text(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "-q"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert captured.err == "" and "\x1b" not in captured.out
    assert all(line == line.rstrip() for line in lines)
    assert lines[0].startswith("demo.onnx  opset 18, 11 nodes")
    assert any(line.startswith("Conv ") and line.endswith(" %") for line in lines)
    assert lines[-1] == "ok: every operator is supported"


def test_check_of_an_unsupported_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = build_model()
    proto.graph.node[2].op_type = "Voodoo"
    onnx.save(proto, tmp_path / "voodoo.onnx")
    assert main(["check", str(tmp_path / "voodoo.onnx")]) == 1
    captured = capsys.readouterr()
    assert "relu1" in captured.out and "Voodoo: unknown operator" in captured.out
    assert captured.out.endswith("not ok: 1 node cannot run\n")
    assert main(["check", str(tmp_path / "voodoo.onnx"), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is False and [node["where"] for node in facts["unsupported"]] == ["relu1"]


def test_explain_shows_the_graph_and_its_passes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["passes"][0]["name"] == "import"
    assert "conv" in facts["graph"].lower()
    assert main(["explain", model]) == 0
    assert facts["passes"][-1]["name"] in capsys.readouterr().out


def test_explain_after_a_pass(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--after", "import", "-q"]) == 0
    captured = capsys.readouterr()
    assert "batchnorm" in captured.out.lower().replace("_", "") and captured.err == ""
    assert main(["explain", model, "--after", "nothing"]) == 2
    assert "FT001: no pass is called 'nothing'" in capsys.readouterr().err


def test_explain_after_a_pass_lists_the_passes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--after", "fold_batch_norm"]) == 0
    text = capsys.readouterr().out
    graph, _, passes = text.partition("\n}\n")
    assert "BatchNorm" not in graph
    assert passes.split()[:5] == ["pass", "runs", "changed", "nodes", "ms"]
    assert "fold_batch_norm" in passes


def test_run_gives_the_reference_result(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)
    np.save(tmp_path / "image.npy", image)
    assert main(["run", model, "--input", f"image={tmp_path / 'image.npy'}", "--save", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:3] == ["output", "probabilities", "f32"]
    assert lines[-1] == f"saved {tmp_path / 'out' / 'output_0.npy'}"
    results = onnx.reference.ReferenceEvaluator(build_model()).run(None, {"image": image})
    assert isinstance(results, list)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "output_0.npy"), results[0], rtol=1e-4, atol=1e-6)


def test_run_with_random_inputs(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--shape", "image=3x3x32x32", "--json", "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [array["shape"] for array in facts["inputs"] + facts["outputs"]] == [[3, 3, 32, 32], [3, 10]]


def test_missing_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path / "nothing.onnx"), "-q"]) == 1
    assert capsys.readouterr().err.startswith("FT101: ")
