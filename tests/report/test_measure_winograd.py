"""The error of each convolution in tiles: which layers are measured, against what, and what becomes of a bad one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from foretell.cli.main import main
from foretell.compiler import import_model, simplify
from foretell.graph.nodes import Array, Graph, Node
from foretell.graph.rewrites.pair_products import pair_products
from foretell.graph.rewrites.use_strassen import use_strassen
from foretell.graph.rewrites.use_winograd import use_winograd
from foretell.report.measure_winograd import WinogradLayer, compute_exactly, measure_winograd
from foretell.search.product_cost import halved_error, paired_error
from foretell.search.winograd_cost import winograd_error
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.target.resolve import resolve_target

SHAPE = (2, 16, 12, 11)
X = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
W = np.random.default_rng(1).standard_normal((16, 16, 3, 3)).astype(np.float32)


def conv(data: str, result: str, *bias: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [data, "w", *bias], [result], f"make {result}", pads=[1, 1, 1, 1])


SQUARE = X[0, 0].T @ X[0, 1]


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: Array = W,
    shape: Sequence[int] = SHAPE,
    square: Array = SQUARE,
) -> onnx.ModelProto:
    """From x to y, with the weights w, the bias b, the data d, and a square matrix."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    constants = {"w": weights, "b": np.arange(len(weights), dtype=np.float32), "d": X, "square": square}
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "layers", values[:1], values[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def measure(nodes: Sequence[onnx.NodeProto], results: int = 4) -> tuple[WinogradLayer, ...]:
    direct = simplify(import_model(model(nodes)))
    tiled = use_winograd(direct, lambda convolution: results)
    return measure_winograd(direct, tiled, {"x": X}, resolve_target(), 1, 1e-4)


@pytest.mark.parametrize("results", [2, 4, 6])
def test_errors_are_of_rounding_and_below_what_is_predicted(results: int) -> None:
    (layer,) = measure([conv("x", "y", "b")], results)
    assert (layer.name, layer.tile) == ("make y", f"F({results}x{results},3x3)")
    assert layer.predicted == winograd_error((3, 3), 16, results)
    assert layer.ok and 1e-8 < layer.comparison.needed < layer.predicted


def test_products_in_pairs() -> None:
    """Of matrices, and of tiles."""
    direct = simplify(
        import_model(model([conv("x", "t", "b"), helper.make_node("MatMul", ["t", "square"], ["y"], "make y")]))
    )
    tiled = use_winograd(direct, lambda convolution: 4)
    layers = measure_winograd(direct, pair_products(tiled, lambda product: True), {"x": X}, resolve_target(), 1, 1e-4)
    assert [(layer.name, layer.tile) for layer in layers] == [("make t", "F(4x4,3x3)"), ("make y", "pairs")]
    assert all(layer.ok and layer.comparison.needed < layer.predicted for layer in layers)
    assert layers[0].predicted > winograd_error((3, 3), 16, 4)


@pytest.mark.parametrize("levels", [1, 2])
def test_products_by_quarters(levels: int) -> None:
    """Of matrices, and of pixels."""
    pixels = helper.make_node("Conv", ["x", "w"], ["t"], "make t")
    product = helper.make_node("MatMul", ["t", "square"], ["y"], "make y")
    weights, square = W[..., :1, :1].copy(), np.eye(12, dtype=np.float32) + 1
    direct = simplify(import_model(model([pixels, product], weights, (2, 16, 11, 12), square)))
    halved = use_strassen(direct, lambda halves: levels)
    x = np.ascontiguousarray(X.transpose(0, 1, 3, 2))
    layers = measure_winograd(direct, halved, {"x": x}, resolve_target(), 1, 1e-4)
    assert [(layer.name, layer.tile) for layer in layers] == [(f"make {y}", f"Strassen({levels})") for y in "ty"]
    assert [layer.predicted for layer in layers] == [halved_error(16, levels), halved_error(12, levels)]
    assert all(layer.ok and layer.comparison.needed < layer.predicted for layer in layers)


def test_windows_in_pairs() -> None:
    """What to expect depends on all products of a sum."""
    direct = simplify(import_model(model([conv("x", "y", "b")])))
    paired = pair_products(direct, lambda product: True)
    (layer,) = measure_winograd(direct, paired, {"x": X}, resolve_target(), 1, 1e-4)
    assert layer.tile == "pairs" and layer.predicted == paired_error(9 * 16)
    assert layer.ok and 1e-8 < layer.comparison.needed < layer.predicted


def test_strides() -> None:
    """The error is that of the whole layer, whose phases are channels."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], "make y", pads=[1, 1, 1, 1], strides=[2, 2])
    (layer,) = measure([node], 4)
    assert layer.tile == "F(4x4,2x2)" and layer.predicted == winograd_error((2, 2), 64, 4)
    assert layer.ok and 1e-8 < layer.comparison.needed < layer.predicted


def test_the_error_is_that_of_the_layer_alone() -> None:
    """Activations are not part of a layer, and what came before is the same for both ways."""
    nodes = [conv("x", "a"), helper.make_node("Relu", ["a"], ["r"]), conv("r", "y")]
    first, second = measure(nodes)
    assert (first.name, second.name) == ("make a", "make y")
    assert all(1e-8 < layer.comparison.needed < layer.predicted for layer in (first, second))


def test_layers_of_the_same_data_and_a_bias_that_is_computed() -> None:
    pooled = helper.make_node("GlobalAveragePool", ["x"], ["p"])
    bias = helper.make_node("ReduceMean", ["p", "axes"], ["m"], keepdims=0)
    axes = helper.make_node("Constant", [], ["axes"], value=numpy_helper.from_array(np.array([0, 2, 3])))
    nodes = [axes, pooled, bias, conv("x", "u", "m"), conv("x", "v"), helper.make_node("Mul", ["u", "v"], ["y"])]
    assert [(layer.name, layer.ok) for layer in measure(nodes)] == [("make u", True), ("make v", True)]


def test_nodes_that_nothing_needs_are_no_layers() -> None:
    assert [layer.name for layer in measure([conv("d", "unused"), conv("x", "dead"), conv("x", "y")])] == ["make y"]


def test_a_direct_convolution_is_not_measured() -> None:
    assert measure([conv("x", "y")], results=0) == ()


def test_exact_convolution() -> None:
    graph: Graph = simplify(import_model(model([conv("x", "y", "b")])))
    node: Node = next(node for node in graph.nodes if node.op == "Conv")
    bias = np.arange(16, dtype=np.float32)
    padded = np.pad(X.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, W.astype(np.float64), optimize=True) + bias[:, None, None]
    found = compute_exactly(node, X, W, bias)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.fixture
def cancelling(tmp_path: Path) -> list[str]:
    """Words for a model whose weights cancel what its data have in common: the prediction does not know."""
    weights, shape = np.random.default_rng(2).standard_normal((64, 64, 3, 3)), (1, 64, 56, 56)
    weights -= weights.mean(axis=1, keepdims=True)
    onnx.save(model([conv("x", "y")], weights.astype(np.float32), shape), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", 1e5 + np.random.default_rng(3).standard_normal(shape, np.float32))
    return ["verify", str(tmp_path / "model.onnx"), "--tolerance", "1", "-q"]


def test_verify_says_the_error_of_each_layer(cancelling: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*cancelling, "--json"]) == 0
    (layer,) = json.loads(capsys.readouterr().out)["winograd"]
    assert layer.keys() == {"layer", "tile", "predicted_error", "measured_error", "budget", "ok", "problem"}
    assert (layer["layer"], layer["budget"], layer["ok"]) == ("make y", DEFAULT_WINOGRAD_ERROR, True)
    assert 0 < layer["measured_error"] < layer["predicted_error"] <= layer["budget"]


def test_a_budget_of_zero_leaves_nothing_to_say(cancelling: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*cancelling, "--winograd-error", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["winograd"] == []
    assert main([*cancelling, "--winograd-error", "0"]) == 0
    assert "Winograd" not in capsys.readouterr().out


def test_a_layer_over_its_budget_is_a_failure(cancelling: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    data = str(Path(cancelling[1]).with_name("x.npy"))
    assert main([*cancelling, "--input", data]) == 1
    text = capsys.readouterr().out
    assert "over budget" in text and text.splitlines()[-1] == "not ok: 1 of 1 layers over their error budget"
    assert "first over tolerance" not in text
    assert main([*cancelling, "--input", data, "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    (layer,) = facts["winograd"]
    assert not facts["ok"] and not layer["ok"] and layer["measured_error"] > layer["budget"]


def test_layers_in_branches_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape, weights = (1, 64, 56, 56), np.random.default_rng(2).standard_normal((64, 64, 3, 3)).astype(np.float32)
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "tf"]
    branches = [
        helper.make_graph([conv("x", "t")], "then", [], types[:1]),
        helper.make_graph([helper.make_node("Neg", ["x"], ["f"])], "otherwise", [], types[1:]),
    ]
    total = helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0)
    condition = helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL)
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    onnx.save(model([total, condition, choice], weights, shape), tmp_path / "model.onnx")
    assert main(["verify", str(tmp_path / "model.onnx"), "-q"]) == 0
    assert "not measured: layers by Winograd in branches and loops (1)" in capsys.readouterr().out
