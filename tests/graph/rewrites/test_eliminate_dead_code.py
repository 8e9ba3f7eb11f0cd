from __future__ import annotations

from foretell.graph.rewrites.eliminate_dead_code import eliminate_dead_code
from foretell.ir.dtypes import BOOL
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, text


def test_golden() -> None:
    sketch = Sketch()
    x, unused = sketch.data(2), sketch.data(3, name="unused")
    sketch.op("Add", sketch.op("Exp", x), sketch.weights(2))
    sketch.op("Neg", unused)
    after = check_rewrite(eliminate_dead_code, sketch.graph(sketch.op("Neg", x)), ops=["Neg"])
    assert str(after) == text(
        """
        graph test(%x: f32[2], %unused: f32[3]) {
          %neg_1: f32[2] = Neg(%x)
          return y0=%neg_1
        }
        """
    )


def test_subgraphs_too() -> None:
    inner = Sketch()
    x = inner.data(3)
    inner.op("Exp", x)
    branch = inner.graph(inner.op("Neg", x))
    sketch = Sketch()
    condition, data = sketch.data(dtype=BOOL, name="c"), sketch.data(3)
    (y,) = sketch.typed("If", (condition, data), {"then_branch": branch, "else_branch": branch}, [data.type])
    graph = sketch.graph(y)
    after = eliminate_dead_code(graph)
    assert [node.op for node in after.walk()] == ["If", "Neg", "Neg"]
    assert_same_results(graph, after)
    assert eliminate_dead_code(after) is after


def test_a_node_stays_for_any_of_its_outputs() -> None:
    inner = Sketch()
    x = inner.data(3)
    branch = inner.graph(inner.op("Exp", x), inner.op("Neg", x))
    sketch = Sketch()
    condition, data = sketch.data(dtype=BOOL, name="c"), sketch.data(3)
    outputs = sketch.typed("If", (condition, data), {"then_branch": branch, "else_branch": branch}, [data.type] * 2)
    check_declines(eliminate_dead_code, sketch.graph(outputs[1]))
