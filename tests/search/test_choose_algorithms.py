"""The error budget, from the public function and the command line to what is compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import foretell
from foretell.cli.main import main
from foretell.support.errors import UsageError
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.target.features import host_architecture

TARGET = "neoverse-n1" if host_architecture() == "aarch64" else "x86-64-v3"
SHAPE = (1, 32, 32, 32)


def model() -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph([node], "conv", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def weight_bytes(error: float) -> int:
    return foretell.compile(model(), target=TARGET, threads=1, winograd_error=error).weight_bytes


def test_the_budget_decides() -> None:
    direct = weight_bytes(0.0)
    assert weight_bytes(DEFAULT_WINOGRAD_ERROR) > weight_bytes(1e-6) > direct
    assert weight_bytes(1e-9) == direct


@pytest.mark.parametrize("error", [-1.0, float("nan")])
def test_no_error_is_negative(error: float) -> None:
    with pytest.raises(UsageError, match="can stay below") as caught:
        foretell.compile(model(), winograd_error=error)
    assert "0, which forbids it, or more" in str(caught.value)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(), tmp_path / "conv.onnx")
    sizes: list[int] = []
    for words in ([], ["--winograd-error", "0"]):
        assert main(["compile", str(tmp_path / "conv.onnx"), "--target", TARGET, *words, "--json", "-q"]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["weight_bytes"])
    assert sizes[0] > sizes[1]


def test_explain_shows_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(), tmp_path / "conv.onnx")
    assert main(["explain", str(tmp_path / "conv.onnx"), "--target", TARGET]) == 0
    printed = capsys.readouterr().out
    assert "WinogradOutput" in printed and "choose_algorithms" in printed
