"""compile, run, verify, bench and explain --kernels, end to end on the demo's model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

import foretell
from examples.demo import build_model
from foretell.cli.main import main
from foretell.target.features import host_architecture

OTHER_MACHINE = "znver3" if host_architecture() == "aarch64" else "neoverse-n1"
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)

Command = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(build_model(), tmp_path / "demo.onnx")
    return tmp_path / "demo.onnx"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with --json; its exit code, and what it printed."""

    def run(*words: object) -> tuple[int, dict[str, Any]]:
        code = main([*map(str, words), "--json", "-q"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_compile_says_what_the_model_needs(model: Path, command: Command) -> None:
    code, facts = command("compile", model, "--shape", "image=2x3x32x32", "--threads", 2)
    assert (code, facts["ok"], facts["threads"], facts["arena_at"]) == (0, True, 2, {})
    assert facts["kernels"] >= 1 and facts["weight_bytes"] > 10_000 and facts["code_bytes"] > 0
    assert list(facts["stages_ms"]) == ["import", "simplify", "lower", "emit", "load", "llvm", "save"]
    assert Path(facts["file"]) == model.with_suffix(".foretell")
    assert facts["file_bytes"] == model.with_suffix(".foretell").stat().st_size
    results = onnx.reference.ReferenceEvaluator(build_model()).run(None, {"image": IMAGE})
    assert isinstance(results, list)
    np.testing.assert_allclose(foretell.load(facts["file"])(IMAGE), results[0], rtol=1e-4, atol=1e-6)


def test_compile_in_words(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "-o", str(tmp_path / "out"), "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["target", "kernels", "weights", "arena"]
    assert lines[3].endswith("where batch = 1")
    assert lines[5].startswith("compiled in ") and lines[6] == f"saved {tmp_path / 'out'}"


def test_compile_for_another_machine(model: Path, command: Command) -> None:
    code, facts = command("compile", model, "--target", OTHER_MACHINE)
    assert code == 0 and facts["target"].endswith(OTHER_MACHINE)
    code, facts = command("run", facts["file"])
    assert (code, facts["error"]["code"]) == (1, "FT501")


def test_compile_into_a_missing_folder(model: Path, tmp_path: Path, command: Command) -> None:
    code, facts = command("compile", model, "-o", tmp_path / "missing" / "model.foretell")
    assert (code, facts["error"]["what"]) == (2, "a compiled model cannot be written")


def test_run_of_a_compiled_model(model: Path, command: Command) -> None:
    command("compile", model)
    arguments = ("--shape", "image=3x3x32x32", "--seed", 4)
    code, from_file = command("run", model.with_suffix(".foretell"), *arguments)
    _, from_onnx = command("run", model, *arguments)
    assert code == 0 and from_file["outputs"][0]["shape"] == [3, 10]
    assert from_file["outputs"][0]["max"] == pytest.approx(from_onnx["outputs"][0]["max"], rel=1e-5)


def test_run_of_a_damaged_file(model: Path, command: Command) -> None:
    command("compile", model)
    path = model.with_suffix(".foretell")
    path.write_bytes(path.read_bytes()[:-1])
    code, facts = command("run", path)
    assert (code, facts["error"]["code"]) == (1, "FT602")


def test_run_on_arrays_by_name(model: Path, tmp_path: Path, command: Command) -> None:
    np.savez(tmp_path / "inputs.npz", image=IMAGE)
    code, facts = command("run", model, "--input", tmp_path / "inputs.npz")
    assert code == 0 and facts["inputs"][0]["shape"] == [2, 3, 32, 32]
    np.savez(tmp_path / "inputs.npz", IMAGE)
    code, facts = command("run", model, "--input", tmp_path / "inputs.npz")
    assert (code, facts["error"]["code"], facts["error"]["got"]) == (1, "FT401", "arr_0")
    (tmp_path / "inputs.npz").write_bytes(b"nothing")
    code, facts = command("run", model, "--input", tmp_path / "inputs.npz")
    assert (code, facts["error"]["code"]) == (1, "FT401")


def test_verify(model: Path, command: Command) -> None:
    code, facts = command("verify", model, "--shape", "image=2x3x32x32")
    assert code == 0 and facts["ok"] and facts["culprit"] is None
    assert facts["inputs"] == {"image": [2, 3, 32, 32]}
    first = facts["comparisons"][0]
    assert (first["output"], first["reference"], first["tolerance"]) == ("probabilities", "evaluator", 1e-4)
    assert 0 <= first["needed"] < 1e-5


def test_verify_over_tolerance(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(model), "--tolerance", "1e-12", "-q"]) == 1
    text = capsys.readouterr().out
    assert "over tolerance" in text and "first over tolerance: " in text
    assert text.splitlines()[-1].startswith("not ok: ")


def test_bench(model: Path, command: Command) -> None:
    code, facts = command("bench", model, "--runs", 5, "--threads", 1, "--shape", "image=1x3x32x32")
    assert (code, facts["runs"], facts["threads"], facts["inputs"]) == (0, 5, 1, {"image": [1, 3, 32, 32]})
    assert 0 < facts["min_ms"] <= facts["p50_ms"] <= facts["p90_ms"] <= facts["p99_ms"]
    assert facts["warmup_runs"] >= 2 and f"foretell {foretell.__version__}" in facts["machine"]


def test_bench_against_a_baseline(model: Path, tmp_path: Path, command: Command) -> None:
    def bench(p50_ms: object) -> tuple[int, dict[str, Any]]:
        (tmp_path / "before.json").write_text(json.dumps({"p50_ms": p50_ms}))
        return command("bench", model, "--runs", 3, "--threads", 1, "--baseline", tmp_path / "before.json")

    code, facts = bench(1e9)
    assert (code, facts["ok"]) == (0, True) and facts["change_percent"] < -99
    code, facts = bench(1e-9)
    assert (code, facts["ok"]) == (1, False) and facts["change_percent"] > 5
    code, facts = bench("quick")
    assert (code, facts["error"]["what"]) == (2, "a baseline cannot be read")


def test_explain_kernels(model: Path, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    code, facts = command("explain", model, "--kernels", "--shape", "image=1x3x32x32")
    assert code == 0
    kernels = facts["kernels"]
    assert all(kernel["native"] and kernel["bytes"] > 0 for kernel in kernels)
    assert kernels[-1]["where"] == "softmax"
    assert 0.8e6 < sum(kernel["flops"] for kernel in kernels) < 1.7e6
    assert main(["explain", str(model), "--kernels", "-q"]) == 0
    assert capsys.readouterr().out.startswith("kernel")
