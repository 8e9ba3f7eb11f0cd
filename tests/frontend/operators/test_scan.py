"""Running sums and products, and the function that builds scans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from foretell.frontend.operators.scan import Step, scan
from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Value
from foretell.graph.verify import verify
from foretell.ir.dtypes import F32, I64
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import InvalidNode
from tests.frontend.operators.single_node import Numbers, assert_near, single_node

AXIS = np.array(1, np.int64)


def numbers(*shape: int, dtype: str = "float32") -> Numbers:
    return np.random.default_rng(0).uniform(0.5, 2, shape).astype(dtype)


@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 3, 4), 1), ((2, 3), -1), ((1, 1), 0)], ids=str)
def test_cumulative(op_type: str, exclusive: int, reverse: int, shape: tuple[int, ...], axis: int) -> None:
    operands = [numbers(*shape), np.array(axis, np.int64)]
    node = single_node(op_type, operands, opset=26, constants=[1], exclusive=exclusive, reverse=reverse)
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "float64"])
def test_cumulative_types(dtype: str) -> None:
    node = single_node("CumSum", [numbers(2, 5, dtype=dtype), AXIS], constants=[1])
    assert_near(node.run(), node.by_reference())


def test_narrow_floats_round_once() -> None:
    x = np.array([[2048, 1, 1, 1, 1]], np.float16)
    (found,) = single_node("CumSum", [x, AXIS], constants=[1]).run()
    assert found[0, -1] == 2052, "in f16, 2048 + 1 is 2048"


def test_nothing_to_add() -> None:
    assert single_node("CumSum", [numbers(3, 0), AXIS], constants=[1]).run()[0].shape == (3, 0)
    symbolic = single_node("CumSum", [numbers(3, 2), AXIS], constants=[1], symbolic=True)
    assert_near(symbolic.run(), symbolic.by_reference())


def test_an_axis_that_is_data_is_left_to_the_reference() -> None:
    graph = single_node("CumSum", [numbers(3, 2), AXIS]).graph()
    assert [node.op for node in graph.nodes] == ["Onnx"]


def test_an_axis_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidNode, match="axis 1 is out of range"):
        single_node("CumSum", [numbers(3), AXIS], constants=[1]).graph()


@pytest.mark.parametrize("backward", [False, True])
def test_a_scan_in_python(backward: bool) -> None:
    """Two states of different types, two sequences, a captured input and a captured constant."""
    build, steps = Builder("test"), Sym("steps", 1)
    x, y = (build.input(name, TensorType(F32, (2, steps))) for name in "xy")
    start, factor = build.input("start", TensorType(F32, (2,))), build.input("factor", TensorType(F32, ()))
    weights = build.constant(np.array([1.0, 2.0], np.float32))

    def advance(step: Step) -> tuple[Sequence[Value], Sequence[Value]]:
        (total, count), (left, right), (scale, weight) = step.states, step.slices, step.captured
        new = step.build.op("Mul", step.build.op("Add", step.build.op("Mul", left, right), total), scale)
        return [new, step.build.op("Add", count, step.build.scalar(1, I64))], [step.build.op("Mul", new, weight)]

    states = [start, build.scalar(0, I64)]
    results = scan(build, advance, states, [x, y], [factor, weights], axis=1, backward=backward)
    graph = build.finish(results, ["total", "count", "rows"])
    verify(graph)
    assert len(graph.nodes[0].inputs) == 5, "a constant is not passed"
    feeds = {"x": numbers(2, 3), "y": numbers(2, 3), "start": numbers(2), "factor": np.float32(0.5).reshape(())}
    found = evaluate(graph, feeds)
    state, rows = feeds["start"], np.empty((2, 3), np.float32)
    for place in range(3)[:: -1 if backward else 1]:
        state = (feeds["x"][:, place] * feeds["y"][:, place] + state) * np.float32(0.5)
        rows[:, place] = state * [1, 2]
    assert_near(list(found.values()), [state, np.array(3), rows])
