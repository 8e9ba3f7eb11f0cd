"""Scatters, top-k, caches and reversed sequences against onnx's reference and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretell.support.errors import InvalidNode
from tests.frontend.operators.single_node import Numbers, assert_near, single_node


def numbers(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements(reduction: str, axis: int) -> None:
    indices = np.array([[0, 2, -1], [1, 1, 0]], np.int64)
    node = single_node(
        "ScatterElements", [numbers(3, 4), indices, numbers(2, 3, seed=1)], axis=axis, reduction=reduction, opset=18
    )
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("opset", [9, 11])
def test_scatter_is_the_old_name(opset: int) -> None:
    indices, updates = np.array([[1, 0, 2]], np.int64), numbers(1, 3, seed=1)
    (found,) = single_node("Scatter", [numbers(3, 3), indices, updates], axis=0, opset=opset).run()
    expected = numbers(3, 3)
    expected[[1, 0, 2], [0, 1, 2]] = updates[0]
    assert_near([found], [expected], 0)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(("shape", "depth"), [((2, 3), 1), ((4,), 2), ((2, 2), 3)])
def test_scatter_nd(reduction: str, shape: tuple[int, ...], depth: int) -> None:
    data = numbers(5, 4, 3)
    indices = np.random.default_rng(1).integers(-3, 3, (*shape, depth))
    updates = numbers(*shape, *data.shape[depth:], seed=2)
    node = single_node("ScatterND", [data, indices, updates], reduction=reduction, opset=18)
    assert_near(node.run(), node.by_reference())


def test_a_large_scatter_is_left_to_the_reference() -> None:
    data, indices = np.zeros(10000, np.float32), np.arange(10000)
    graph = single_node("ScatterElements", [data, indices, data], opset=18).graph()
    assert [node.op for node in graph.nodes] == ["Onnx"]


@pytest.mark.parametrize(("opset", "attributes"), [(1, {"k": 3}), (10, {}), (11, {"largest": 0}), (24, {"axis": 0})])
def test_top_k(opset: int, attributes: dict[str, Any]) -> None:
    x, k = numbers(4, 5), np.array([3], np.int64)
    if opset == 1:
        opset, attributes = 7, {**attributes, "axis": 1}
        node = single_node("TopK", [x], outputs=("values", "indices"), opset=opset, **attributes)
    else:
        node = single_node("TopK", [x, k], outputs=("values", "indices"), opset=opset, constants=[1], **attributes)
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize(("mode", "starts"), [("linear", [1, 3]), ("circular", [4, 2]), ("linear", None)])
@pytest.mark.parametrize("axis", [-2, 1])
def test_tensor_scatter(mode: str, starts: list[int] | None, axis: int) -> None:
    cache, update = numbers(2, 5, 5, 3), numbers(*((2, 5, 2, 3) if axis == -2 else (2, 2, 5, 3)), seed=1)
    operands = [cache, update, None if starts is None else np.array(starts, np.int64)]
    node = single_node("TensorScatter", operands, mode=mode, axis=axis, opset=24)
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_reverse_sequence(time: int, batch: int, rest: tuple[int, ...]) -> None:
    lengths = np.array([1, 4, 2, 3], np.int64)
    node = single_node("ReverseSequence", [numbers(4, 4, *rest), lengths], time_axis=time, batch_axis=batch, opset=10)
    assert_near(node.run(), node.by_onnxruntime(), 0)


def test_what_makes_no_sense_is_refused() -> None:
    x, indices = numbers(3, 4), np.zeros((2, 2), np.int64)
    with pytest.raises(InvalidNode, match="unknown reduction"):
        single_node("ScatterND", [x, indices, numbers(2)], reduction="sum", opset=18).graph()
    with pytest.raises(InvalidNode, match="need the rank"):
        single_node("ScatterElements", [x, indices[0], numbers(2)], opset=18).graph()
    with pytest.raises(InvalidNode, match="no arithmetic"):
        single_node("ScatterND", [x > 0, indices, numbers(2) > 0], reduction="add", opset=18).graph()
    with pytest.raises(InvalidNode, match="do not fit"):
        single_node("ScatterND", [x, np.zeros((2, 3), np.int64), numbers(2)], opset=18).graph()
    with pytest.raises(InvalidNode, match="no 9 elements"):
        k = np.array([9], np.int64)
        single_node("TopK", [x, k], outputs=("v", "i"), constants=[1], opset=11).graph()
    with pytest.raises(InvalidNode, match="must be 0 and 1"):
        single_node("ReverseSequence", [x, np.ones(4, np.int64)], time_axis=0, batch_axis=0, opset=10).graph()
    with pytest.raises(InvalidNode, match="cannot write"):
        single_node("TensorScatter", [x, x], axis=0, opset=24).graph()
