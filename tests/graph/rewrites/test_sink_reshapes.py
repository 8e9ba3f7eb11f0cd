from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.sink_reshapes import sink_reshapes
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, operators, text

N = Sym("n", 1)


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.op("Reshape", sketch.data(N, 6), shape=(N, 2, 3))
    y = sketch.op("Gelu", sketch.op("Add", x, sketch.number(0.5)), approximate="none")
    after = check_rewrite(sink_reshapes, sketch.graph(y), ops=["Add", "Gelu", "Reshape"])
    assert str(after) == text(
        """
        graph test(%x: f32[n, 6]) {
          %c: f32[] = constant 0.5
          %add_1: f32[n, 6] = Add(%x, %c)
          %gelu_1: f32[n, 6] = Gelu(%add_1) {approximate=none}
          %reshape_2: f32[n, 2, 3] = Reshape(%gelu_1) {shape=(n, 2, 3)}
          return y0=%reshape_2
        }
        """
    )


def test_two_operands_that_were_reshaped_alike() -> None:
    sketch = Sketch()
    left, right = (sketch.op("Reshape", sketch.data(4, 6, name=name), shape=(24,)) for name in "xz")
    check_rewrite(sink_reshapes, sketch.graph(sketch.op("Mul", left, right)), ops=["Mul", "Reshape"])


@given(st.sampled_from([(24,), (4, 6), (2, 12), (1, 24, 1)]), st.sampled_from(["Exp", "Add", "Square"]))
def test_the_same_results(shape: tuple[int, ...], op: str) -> None:
    sketch = Sketch()
    x = sketch.op("Reshape", sketch.data(2, 3, 4), shape=shape)
    y = {
        "Exp": lambda: sketch.op("Exp", x),
        "Add": lambda: sketch.op("Add", sketch.data(1, name="z"), x),
        "Square": lambda: sketch.op("Mul", x, x),
    }[op]()
    graph = sketch.graph(y)
    after = sink_reshapes(graph)
    assert_same_results(graph, after)
    assert operators(after)[-1] == "Reshape"


def declined(case: str) -> Graph:
    sketch = Sketch()
    x = sketch.op("Reshape", sketch.data(4, 6), shape=(24,))
    match case:
        case "another reader":
            return sketch.graph(sketch.op("Exp", x), x)
        case "an operand that is not reshaped":
            return sketch.graph(sketch.op("Add", x, sketch.data(24, name="z")))
        case "another shape before":
            return sketch.graph(sketch.op("Add", x, sketch.op("Reshape", sketch.data(2, 12, name="z"), shape=(24,))))
        case _:
            assert case == "an operand that is broadcast"
            return sketch.graph(sketch.op("Add", x, sketch.op("Reshape", sketch.data(2, 12, name="z"), shape=(24, 1))))


@pytest.mark.parametrize(
    "case",
    ["another reader", "an operand that is not reshaped", "another shape before", "an operand that is broadcast"],
)
def test_declines(case: str) -> None:
    check_declines(sink_reshapes, declined(case))
