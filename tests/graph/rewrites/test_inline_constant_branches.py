from __future__ import annotations

import pytest

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.graph.rewrites.inline_constant_branches import inline_constant_branches
from foretell.graph.verify import verify
from foretell.ir.dtypes import BOOL, F32
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, operators, random_feeds, text


def branch(*ops: str) -> Graph:
    sketch = Sketch()
    value = sketch.data(3)
    for op in ops:
        value = sketch.op("Add", value, sketch.number(0.5, (3,))) if op == "Add" else sketch.op(op, value)
    return sketch.graph(value)


def choice(condition: bool | None, then_branch: Graph, else_branch: Graph) -> Graph:
    sketch = Sketch()
    x = sketch.data(3)
    chosen = sketch.data(dtype=BOOL, name="c") if condition is None else sketch.number(condition, dtype=BOOL)
    attrs = {"then_branch": then_branch, "else_branch": else_branch}
    (y,) = sketch.typed("If", (chosen, sketch.op("Exp", x)), attrs, [x.type])
    return sketch.graph(sketch.op("Exp", y))


def test_golden() -> None:
    graph = choice(True, branch("Neg", "Add", "Exp"), branch("Abs"))
    after = check_rewrite(inline_constant_branches, graph, ops=["Exp", "Neg", "Add", "Exp", "Exp"])
    assert str(after) == text(
        """
        graph test(%x: f32[3]) {
          %c_1: f32[3] = constant [0.5, 0.5, 0.5]
          %exp: f32[3] = Exp(%x)
          %neg: f32[3] = Neg(%exp)
          %add: f32[3] = Add(%neg, %c_1)
          %exp_2: f32[3] = Exp(%add)
          %exp_1: f32[3] = Exp(%exp_2)
          return y0=%exp_1
        }
        """
    )


@pytest.mark.parametrize("condition", [True, False])
def test_either_branch(condition: bool) -> None:
    after = check_rewrite(
        inline_constant_branches,
        choice(condition, branch("Neg"), branch()),
        ops=["Exp", "Neg", "Exp"] if condition else ["Exp", "Exp"],
    )
    assert after.constants == {}


def test_branches_inside_branches() -> None:
    graph = choice(True, choice(False, branch("Neg"), branch("Abs")), branch())
    check_rewrite(inline_constant_branches, graph, ops=["Exp", "Exp", "Abs", "Exp", "Exp"])


def test_declines_a_condition_that_is_data() -> None:
    check_declines(inline_constant_branches, choice(None, branch("Neg"), branch("Abs")))


def different_shapes() -> Graph:
    """The result has 3 or 1 elements; what is downstream knows it as u."""
    inner = Sketch()
    one = inner.graph(inner.op("ReduceSum", inner.data(3), axes=(0,), keepdims=True))
    sketch, u = Sketch(), Sym("u", 0)
    x, condition = sketch.data(3), sketch.number(True, dtype=BOOL)
    attrs = {"then_branch": branch("Neg"), "else_branch": one}
    (y,) = sketch.typed("If", (condition, x), attrs, [TensorType(F32, (u,))])
    doubled = sketch.op("Concat", y, y, axis=0)
    return sketch.graph(sketch.op("Reshape", doubled, shape=(2, u)))


def test_dimensions_downstream_become_those_of_the_branch() -> None:
    graph = different_shapes()
    after = inline_constant_branches(graph)
    verify(after)
    assert operators(after) == ["Neg", "Concat", "Reshape"]
    assert [str(value.type) for value in after.outputs] == ["f32[2, 3]"]
    feeds = random_feeds(graph)
    assert (evaluate(graph, feeds)["y0"] == evaluate(after, feeds)["y0"]).all()


def test_declines_a_branch_that_does_not_fit_downstream() -> None:
    sketch, u = Sketch(), Sym("u", 0)
    x, condition = sketch.data(3), sketch.number(True, dtype=BOOL)
    attrs = {"then_branch": branch("Neg"), "else_branch": branch()}
    (y,) = sketch.typed("If", (condition, x), attrs, [TensorType(F32, (u,))])
    check_declines(inline_constant_branches, sketch.graph(sketch.op("Add", y, sketch.data(4, name="z"))))
