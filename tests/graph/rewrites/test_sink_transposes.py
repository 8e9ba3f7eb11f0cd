from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.graph.nodes import Graph, Value
from foretell.graph.rewrites.sink_transposes import sink_transposes
from foretell.ir.dtypes import F16
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, operators, text

N = Sym("n", 1)
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.op("Transpose", sketch.data(N, 2, 5, 7), perm=TO_LAST)
    y = sketch.op("Relu", sketch.op("Add", x, sketch.number(0.5, (2,))))
    after = check_rewrite(sink_transposes, sketch.graph(y), ops=["Add", "Relu", "Transpose"])
    assert str(after) == text(
        """
        graph test(%x: f32[n, 2, 5, 7]) {
          %c_1: f32[1, 2, 1, 1] = constant [[[[0.5]], [[0.5]]]]
          %add_1: f32[n, 2, 5, 7] = Add(%x, %c_1)
          %relu_1: f32[n, 2, 5, 7] = Relu(%add_1)
          %transpose_2: f32[n, 5, 7, 2] = Transpose(%relu_1) {perm=(0, 2, 3, 1)}
          return y0=%transpose_2
        }
        """
    )


def two(g: Sketch, x: Value) -> list[Value]:
    return [x, g.op("Transpose", g.data(3, 2, 5, 7, name="z"), perm=TO_LAST)]


ONE_LEFT: dict[str, tuple[Callable[[Sketch, Value], Value], list[str]]] = {
    "two operands": (lambda g, x: g.op("Mul", *two(g, x)), ["Mul", "Transpose"]),
    "one operand twice": (lambda g, x: g.op("Mul", x, x), ["Mul", "Transpose"]),
    "a scalar that is data": (lambda g, x: g.op("Add", g.data(1, name="z"), x), ["Add", "Transpose"]),
    "cast": (lambda g, x: g.op("Cast", x, to=F16), ["Cast", "Transpose"]),
    "softmax": (lambda g, x: g.op("Softmax", x, axis=3), ["Softmax", "Transpose"]),
    "sum": (lambda g, x: g.op("ReduceSum", x, axes=(1, 3), keepdims=True), ["ReduceSum", "Transpose"]),
    "sum without axes": (lambda g, x: g.op("ReduceSum", x, axes=(0, 1), keepdims=False), ["ReduceSum", "Transpose"]),
    "mean over space": (lambda g, x: g.op("ReduceMean", x, axes=(1, 2), keepdims=False), ["ReduceMean"]),
    "argmax": (
        lambda g, x: g.op("ArgMax", x, axis=3, keepdims=True, select_last_index=False),
        ["ArgMax", "Transpose"],
    ),
    "concat": (lambda g, x: g.op("Concat", *two(g, x), g.weights(3, 5, 7, 1), axis=3), ["Concat", "Transpose"]),
    "slice": (
        lambda g, x: g.op("Slice", x, starts=(0, 1, 6, 0), steps=(1, 2, -1, 1), shape=(3, 2, 7, 1)),
        ["Slice", "Transpose"],
    ),
    "pad": (
        lambda g, x: g.op("Pad", x, before=(0, 1, 2, 0), after=(0, 0, 1, 3), mode="constant"),
        ["Pad", "Transpose"],
    ),
}


@pytest.mark.parametrize("case", ONE_LEFT)
def test_below(case: str) -> None:
    make, ops = ONE_LEFT[case]
    sketch = Sketch()
    x = sketch.op("Transpose", sketch.data(3, 2, 5, 7), perm=TO_LAST)
    check_rewrite(sink_transposes, sketch.graph(make(sketch, x)), ops=ops)


@given(
    st.permutations(range(4)),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
    st.lists(st.sampled_from(["Neg", "Add", "Softmax", "ReduceSum", "Slice"]), min_size=1, max_size=3),
)
def test_never_more_transposes_and_the_same_results(perm: list[int], shape: list[int], ops: list[str]) -> None:
    sketch = Sketch()
    value = sketch.op("Transpose", sketch.data(*shape), perm=tuple(perm))
    for op in ops:
        value = step(sketch, op, value)
    graph = sketch.graph(value)
    after = sink_transposes(graph)
    assert_same_results(graph, after)
    assert operators(after).count("Transpose") <= 1
    assert sink_transposes(after) is after


def step(g: Sketch, op: str, x: Value) -> Value:
    shape = x.type.static_shape
    match op:
        case "Add":
            return g.op("Add", g.weights(*shape[1:]), x)
        case "Softmax":
            return g.op("Softmax", x, axis=2)
        case "ReduceSum":
            return g.op("ReduceSum", x, axes=(1,), keepdims=True)
        case "Slice":
            return g.op("Slice", x, starts=(0,) * 4, steps=(1,) * 4, shape=(1, *shape[1:]))
        case _:
            return g.op(op, x)


def test_channels_last_islands_vanish() -> None:
    """What a converter from channels-last leaves around every convolution."""
    sketch = Sketch()
    x = sketch.data(1, 2, 5, 7)
    a = sketch.op("Transpose", x, perm=TO_LAST)
    a = sketch.op("Relu", sketch.op("Add", a, sketch.weights(2)))
    graph = sketch.graph(sketch.op("Exp", sketch.op("Transpose", a, perm=TO_FIRST)))
    check_rewrite(sink_transposes, graph, ops=["Add", "Relu", "Exp"])


def declined(case: str) -> Graph:
    sketch = Sketch()
    x = sketch.op("Transpose", sketch.data(3, 2, 5, 7), perm=TO_LAST)
    if case == "another reader":
        return sketch.graph(sketch.op("Relu", x), x)
    if case == "another permutation":
        other = sketch.op("Transpose", sketch.data(3, 7, 5, 2, name="z"), perm=(0, 2, 1, 3))
        return sketch.graph(sketch.op("Add", x, other))
    if case == "an operand that is not transposed":
        return sketch.graph(sketch.op("Add", x, sketch.data(2, name="z")))
    assert case == "a result larger than the operand"
    small = sketch.op("Transpose", sketch.data(1, 2, name="z"), perm=(1, 0))
    return sketch.graph(sketch.op("Mul", small, sketch.weights(2, 100)))


@pytest.mark.parametrize(
    "case",
    [
        "another reader",
        "another permutation",
        "an operand that is not transposed",
        "a result larger than the operand",
    ],
)
def test_declines(case: str) -> None:
    check_declines(sink_transposes, declined(case))
