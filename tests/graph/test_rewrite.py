"""Who may change a constant: arrays are counted, not names."""

from __future__ import annotations

import numpy as np

from foretell.graph.build import Builder
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import COPIES_BYTES, SMALL_BYTES, Rewriter, rewrite, with_outputs
from foretell.graph.rewrites.fold_scale import fold_scale
from foretell.ir.dtypes import BOOL, F32
from foretell.ir.tensor_expr import TensorType
from tests.graph.build_graphs import Sketch, operators


def test_one_array_is_one_value() -> None:
    builder, array = Builder("g"), np.ones(3, np.float32)
    array.flags.writeable = False
    assert builder.constant(array, "a") is builder.constant(array, "b")
    assert builder.constant(array.copy(), "c") is not builder.constant(array, "d")


def _product_in_branches(weights: np.ndarray) -> Graph:
    """An If whose branches both scale a product with the same weights."""

    def branch() -> Graph:
        inner = Sketch()
        x = inner.data(2, weights.shape[0])
        return inner.graph(inner.op("Mul", inner.op("MatMul", x, inner.constant(weights)), inner.number(2.0)))

    sketch = Sketch()
    condition, x = sketch.input("c", TensorType(BOOL, ())), sketch.data(2, weights.shape[0])
    branches = {"then_branch": branch(), "else_branch": branch()}
    (y,) = sketch.typed("If", (condition, x), branches, [TensorType(F32, (2, weights.shape[1]))])
    return sketch.graph(y)


def test_large_weights_that_two_branches_share_are_not_copied() -> None:
    weights = np.ones((SMALL_BYTES // 16, 8), np.float32)
    weights.flags.writeable = False
    graph = _product_in_branches(weights)
    assert fold_scale(graph) is graph
    small = weights[:2].copy()
    small.flags.writeable = False
    assert [node.op for node in fold_scale(_product_in_branches(small)).walk()] == ["If", "MatMul", "MatMul"]


def test_small_constants_are_copied_until_it_is_too_much() -> None:
    sketch = Sketch()
    x, shared = sketch.data(SMALL_BYTES // 8), sketch.weights(SMALL_BYTES // 8)
    graph = sketch.graph(*(sketch.op(op, x, shared) for op in ("Add", "Sub")))
    rewriter = Rewriter(graph)
    copies = sum(rewriter.may_copy(shared) for _ in range(2 * COPIES_BYTES // SMALL_BYTES * 2))
    assert copies == 2 * COPIES_BYTES // SMALL_BYTES


def test_a_rule_sees_the_nodes_of_subgraphs_first() -> None:
    seen: list[str] = []

    def look(node: Node, rewriter: Rewriter) -> list[Value] | None:
        seen.append(node.op)
        return None

    graph = _product_in_branches(np.ones((2, 2), np.float32))
    assert rewrite(graph, look) is graph
    assert seen == ["MatMul", "Mul", "MatMul", "Mul", "If"]
    assert operators(graph) == ["If"]


def test_other_outputs_need_other_nodes() -> None:
    sketch = Sketch()
    x = sketch.data(2)
    first = sketch.op("Exp", x)
    graph = sketch.graph(sketch.op("Neg", first))
    found = with_outputs(graph, (first, x))
    assert operators(found) == ["Exp"] and found.inputs == graph.inputs
    assert found.outputs == (first, x) and found.output_names == (first.name, x.name)
