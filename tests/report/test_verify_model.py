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
from foretell.report.verify_model import compare
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


def test_equal_arrays_need_no_tolerance() -> None:
    found = compare("y", X, X, "evaluator")
    assert found.ok and (found.max_abs, found.max_rel, found.needed, found.tolerance) == (0, 0, 0, 1e-4)


def test_errors_count_in_parts_of_the_scale() -> None:
    expected = np.array([1000.0, 0.001, 0.0], np.float32)
    found = compare("y", expected + np.float32(0.01), expected, "evaluator")
    assert found.ok and found.needed == pytest.approx(1e-5, rel=0.1) and found.max_rel == pytest.approx(10, rel=0.1)
    assert not compare("y", expected + np.float32(0.01), expected, "evaluator", tolerance=1e-6).ok


def test_integers_must_be_equal() -> None:
    expected = np.arange(4)
    assert compare("y", expected, expected, "evaluator").ok
    assert not compare("y", expected + 1, expected, "evaluator").ok


def test_nan_and_infinity_must_be_in_place() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert compare("y", expected, expected, "evaluator").ok
    for value in (0, np.nan, -np.inf):
        wrong = np.where(np.isposinf(expected), np.float32(value), expected)
        assert compare("y", wrong, expected, "evaluator").problem
    assert not compare("y", np.full(4, np.nan, np.float32), expected, "evaluator").ok


def test_shape_and_type_are_part_of_the_result() -> None:
    assert compare("y", X[:1], X, "evaluator").problem == "float32[1, 8] where float32[5, 8] is expected"
    assert not compare("y", X.astype(np.float64), X, "evaluator").ok
    assert compare("y", X[:0], X[:0], "evaluator").ok
