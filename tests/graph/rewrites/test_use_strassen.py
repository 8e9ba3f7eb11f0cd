"""Products by quarters: the same results with a like error, whatever the sizes; and what declines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.ops.strassen import LEFT, RESULTS, RIGHT
from foretell.graph.rewrites.use_strassen import MOST_LEVELS, Halves, try_halves, use_strassen, weight_sums
from foretell.ir.dtypes import F32, F64
from foretell.ir.expr import Sym
from foretell.link_program import link_program, lower_program
from foretell.loops.lower_graph import NativeStep
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, check_declines, operators, random_feeds
from tests.tolerances import assert_close

TARGET = resolve_target("native")
HALVED = ["StrassenOperand", "MatMul", "StrassenResult"]


def halved(graph: Graph, levels: int = 1) -> Graph:
    return use_strassen(graph, lambda halves: levels if halves.fits(levels) else 0)


def product(rows: int, length: int, width: int, *batch: int, has_bias: bool = True) -> Graph:
    sketch = Sketch()
    bias = (sketch.weights(width, seed=2),) if has_bias else ()
    return sketch.graph(sketch.op("MatMul", sketch.data(*batch, rows, length), sketch.weights(length, width), *bias))


def pointwise(shape: tuple[int, ...], stride: int = 1, pad: int = 0, group: int = 1, taps: int = 1) -> Graph:
    sketch, rank = Sketch(), len(shape)
    x, w = sketch.data(2, 24, *shape), sketch.weights(20, 24 // group, *(taps,) * rank)
    attrs = {"strides": (stride,) * rank, "dilations": (1,) * rank, "before": (pad,) * rank, "after": (pad,) * rank}
    return sketch.graph(sketch.op("Conv", x, w, sketch.weights(20, seed=2), group=group, **attrs))


def run(graph: Graph, x: Array) -> Array:
    (found,) = link_program(graph, TARGET).run({"x": x}).values()
    return found


def check(graph: Graph, levels: int) -> None:
    """The interpreter and machine code agree with what was there before."""
    after = halved(graph, levels)
    assert operators(after) == HALVED
    feeds = random_feeds(graph)
    (expected,) = evaluate(graph, feeds).values()
    halves = try_halves(graph.nodes[0])
    assert halves is not None
    assert_close(evaluate(after, feeds)["y0"], expected, F32, terms=6**levels * halves.length)
    assert_close(run(after, feeds["x"]), expected, F32, terms=6**levels * halves.length)


def test_seven_products_make_up_for_eight() -> None:
    """sum[p] results[q, p] * left[p, a] * right[p, b] is 1 where quarters a of x and b of w meet in q, else 0."""
    left, right, results = (np.array(matrix, np.float64) for matrix in (LEFT, RIGHT, RESULTS))
    found = np.einsum("qp,pa,pb->qab", results, left, right)
    for quarter in range(4):
        row, column = divmod(quarter, 2)
        expected = np.zeros((4, 4))
        for middle in range(2):
            expected[2 * row + middle, 2 * middle + column] = 1
        np.testing.assert_array_equal(found[quarter], expected)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize(("rows", "length", "width"), [(1, 4, 4), (2, 8, 12), (7, 24, 40), (64, 32, 48), (197, 64, 36)])
def test_any_number_of_rows(rows: int, length: int, width: int, levels: int) -> None:
    check(product(rows, length, width), levels)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 20), st.integers(1, 2))
def test_any_size(rows: int, length: int, width: int, levels: int) -> None:
    check(product(rows, length * 2**levels, width * 2**levels), levels)


@pytest.mark.parametrize("levels", [1, 2])
def test_batches_and_no_bias(levels: int) -> None:
    check(product(6, 16, 32, 3, 2, has_bias=False), levels)
    check(product(5, 16, 32, 2), levels)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(12,), (5, 8), (3, 7), (2, 3, 4)])
def test_convolutions_with_one_tap(shape: tuple[int, ...], stride: int, levels: int) -> None:
    check(pointwise(shape, stride), levels)


def test_what_follows_is_computed_with_the_results() -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.data(8, 32), sketch.weights(32, 48), sketch.weights(48, seed=2))
    graph = sketch.graph(sketch.op("Mul", y, sketch.op("Sigmoid", y)))
    feeds = random_feeds(graph)
    (step,) = lower_program(halved(graph), TARGET).steps
    assert isinstance(step, NativeStep) and len(step.kernels) <= len(HALVED)
    assert_close(run(halved(graph), feeds["x"]), evaluate(graph, feeds)["y0"], F32, terms=6 * 32)


def test_products_of_the_same_data_share_its_sums() -> None:
    sketch = Sketch()
    x = sketch.data(8, 32)
    graph = sketch.graph(*(sketch.op("MatMul", x, sketch.weights(32, 16, seed=seed)) for seed in range(3)))
    assert operators(halved(graph)).count("StrassenOperand") == 1


def test_errors_grow_little() -> None:
    graph = product(64, 256, 64, has_bias=False)
    x = random_feeds(graph)["x"]
    (weights,) = graph.constants.values()
    exact = x.astype(np.float64) @ weights
    plain, once, twice = (abs(run(each, x) - exact).max() for each in (graph, halved(graph, 1), halved(graph, 2)))
    assert once < 4 * plain and twice < 12 * plain


def test_what_is_not_finite_stays_among_neighbours() -> None:
    graph = product(8, 16, 16)
    x = random_feeds(graph)["x"]
    x[4, 3] = np.inf
    found = np.isfinite(run(halved(graph), x)).all(axis=1)
    assert found.tolist() == [True] * 4 + [False] * 2 + [True] * 2


def test_weights_are_rounded_once() -> None:
    weights = np.array([[1.0, 2.0**-24], [2.0**-24, 1.0]], np.float32)
    assert weight_sums(weights, 1)[0, 0, 0] == 2.0
    assert weight_sums(np.eye(4, dtype=np.float32), 2).shape == (49, 1, 1)


def test_halves() -> None:
    assert try_halves(product(7, 12, 20, 3).nodes[0]) == Halves(3, 7, 12, 20)
    assert try_halves(pointwise((5, 8), 2).nodes[0]) == Halves(2 * 3, 4, 24, 20)
    assert Halves(1, 1, 12, 20).fits(2) and not Halves(1, 8, 12, 18).fits(2)
    assert not Halves(1, 1, 64, 64).fits(MOST_LEVELS + 1)


def not_constant(sketch: Sketch) -> Value:
    return sketch.op("MatMul", sketch.data(8, 16), sketch.data(16, 8, name="w"))


def in_float64(sketch: Sketch) -> Value:
    return sketch.op("MatMul", sketch.data(8, 16, dtype=F64), sketch.weights(16, 8, dtype=F64))


def of_unknown_size(sketch: Sketch) -> Value:
    return sketch.op("MatMul", sketch.data(Sym("n", 1), 16), sketch.weights(16, 8))


def with_a_batch_of_weights(sketch: Sketch) -> Value:
    return sketch.op("MatMul", sketch.data(2, 8, 16), sketch.weights(2, 16, 8))


def empty(sketch: Sketch) -> Value:
    return sketch.op("MatMul", sketch.data(0, 16), sketch.weights(16, 8))


def odd(sketch: Sketch) -> Value:
    return sketch.op("MatMul", sketch.data(8, 15), sketch.weights(15, 8))


@pytest.mark.parametrize("build", [not_constant, in_float64, of_unknown_size, with_a_batch_of_weights, empty, odd])
def test_declines(build: Callable[[Sketch], Value]) -> None:
    sketch = Sketch()
    check_declines(halved, sketch.graph(build(sketch)))


@pytest.mark.parametrize("graph", [pointwise((4, 4), pad=1), pointwise((4, 4), group=2), pointwise((4, 4), taps=3)])
def test_declines_for_other_convolutions(graph: Graph) -> None:
    check_declines(halved, graph)
