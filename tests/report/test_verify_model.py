from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from foretell.compiler import import_model, link_program
from foretell.graph.nodes import Graph
from foretell.report import onnxruntime_peer, verify_model
from foretell.runtime.session import CompiledModel
from foretell.support.progress import Progress
from foretell.target.resolve import resolve_target

X = np.random.default_rng(0).standard_normal((5, 8), np.float32)


def two_layers() -> onnx.ModelProto:
    generator = np.random.default_rng(1)
    weights = {name: generator.standard_normal((8, 8)).astype(np.float32) for name in ("w1", "w2", "w3")}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w2"], ["b"], "second"),
        helper.make_node("MatMul", ["b", "w3"], ["y"], "third"),
    ]
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 8]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "layers", types[:1], types[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_the_first_kernel_over_tolerance_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def miscompile(graph: Graph, *arguments: Any) -> CompiledModel:
        constants = {value: array * 2 if value.name == "w2" else array for value, array in graph.constants.items()}
        return link_program(replace(graph, constants=constants), *arguments)

    monkeypatch.setattr(verify_model, "link_program", miscompile)
    monkeypatch.setattr(onnxruntime_peer, "is_installed", lambda: False)
    onnx.save(two_layers(), tmp_path / "model.onnx")
    report = verify_model.verify_model(
        tmp_path / "model.onnx",
        import_model(tmp_path / "model.onnx"),
        {"x": X},
        target=resolve_target(),
        threads=1,
        progress=Progress(quiet=True),
    )
    assert not report.ok and report.notes == ("onnxruntime is not installed",)
    assert report.culprit is not None
    assert report.culprit.location in ("second", "third"), "the second, unless it is part of the third's kernel"
    assert report.lines()[-1] == "not ok: 1 of 1 differ"
