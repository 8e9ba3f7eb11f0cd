"""Products in pairs: the same results with a like error, whatever the sizes and magnitudes; and what declines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.rewrites.pair_products import Product, pair_products, try_product, weight_parts
from foretell.ir.dtypes import F32, F64
from foretell.ir.expr import Sym
from foretell.link_program import link_program
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, check_declines, operators, random_feeds
from tests.tolerances import assert_close

TARGET = resolve_target("native")


def always(_: Product) -> bool:
    return True


def paired(graph: Graph) -> Graph:
    return pair_products(graph, always)


def product(rows: int, length: int, width: int, *batch: int, has_bias: bool = True) -> Graph:
    sketch = Sketch()
    bias = (sketch.weights(width, seed=2),) if has_bias else ()
    return sketch.graph(
        sketch.op("MatMul", sketch.data(*batch, rows, length), sketch.weights(*batch, length, width), *bias)
    )


def pointwise(channels: int, outputs: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Graph:
    sketch = Sketch()
    return sketch.graph(conv(sketch, sketch.data(2, channels, *shape), outputs, strides))


def conv(sketch: Sketch, x: Value, outputs: int, strides: tuple[int, ...], pad: int = 0, group: int = 1) -> Value:
    rank, channels = len(strides), x.shape[1]
    assert isinstance(channels, int)
    weights = sketch.weights(outputs, channels // group, *(1,) * rank)
    pads, ones = (pad,) * rank, (1,) * rank
    return sketch.op("Conv", x, weights, strides=strides, dilations=ones, before=pads, after=pads, group=group)


def results(graph: Graph, x: Array) -> Array:
    (found,) = link_program(graph, TARGET).run({"x": x}).values()
    return found


def check(graph: Graph) -> None:
    """The interpreter and machine code agree with what was there before."""
    after = paired(graph)
    assert operators(after) in (["PairedMatMul"], ["PairedConv"])
    feeds = random_feeds(graph)
    (expected,) = evaluate(graph, feeds).values()
    terms = 4 * graph.inputs[0].type.static_shape[1 if after.nodes[0].op == "PairedConv" else -1]
    assert_close(evaluate(after, feeds)["y0"], expected, graph.outputs[0].dtype, terms=terms)
    assert_close(results(after, feeds["x"]), expected, graph.outputs[0].dtype, terms=terms)


@pytest.mark.parametrize("length", [3, 4, 5, 23, 24, 29, 48, 64, 96, 131])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 16), (17, 40)])
def test_any_length(rows: int, length: int, width: int) -> None:
    check(product(rows, length, width))


def test_batches_and_no_bias() -> None:
    check(product(7, 50, 33, 3, has_bias=False))
    sketch = Sketch()
    shared = sketch.op("MatMul", sketch.data(3, 4, 30), sketch.weights(30, 20))
    check(sketch.graph(shared))
    sketch = Sketch()
    check(sketch.graph(sketch.op("MatMul", sketch.data(3, 2, 4, 30), sketch.weights(3, 1, 30, 20))))


@pytest.mark.parametrize("strides", [(1,), (2, 2), (1, 3)])
def test_convolutions_of_one_tap(strides: tuple[int, ...]) -> None:
    check(pointwise(37, 20, (7, 6)[: len(strides)], strides))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(3, 150), st.integers(1, 50))
def test_any_sizes(rows: int, length: int, width: int) -> None:
    check(product(rows, length, width))


@pytest.mark.parametrize("size", [1e-25, 1e-6, 1.0, 1e5, 1e18])
def test_errors_do_not_depend_on_magnitudes(size: float) -> None:
    """Rows and columns are brought to like magnitudes: that of one does not matter to the other."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((9, 300)).astype(np.float32), rng.standard_normal((300, 40)).astype(np.float32)
    x *= np.float32(size) * np.exp2(np.arange(9, dtype=np.float32))[:, None]
    w *= np.exp2(-np.arange(40, dtype=np.float32) / 2)
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.data(9, 300), sketch.constant(w)))
    exact = x.astype(np.float64) @ w
    norms = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(w.astype(np.float64), axis=0)
    assert np.abs((results(paired(graph), x) - exact) / norms).max() < 1e-6


def test_one_element_may_be_much_larger_than_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 300)).astype(np.float32)
    x[:, 7] *= 1e4
    graph = product(9, 300, 40)
    (expected,) = evaluate(graph, {"x": x}).values()
    assert np.abs(results(paired(graph), x) - expected).max() < 1e-5 * np.abs(expected).max()


def test_rows_without_numbers() -> None:
    """Zeros give the bias; NaN and infinity spread to their rows, and no further."""
    graph = product(6, 40, 20)
    x = random_feeds(graph)["x"].copy()
    x[1] = 0
    x[3, 5] = np.nan
    x[4, 39] = np.inf
    found, (expected,) = results(paired(graph), x), evaluate(graph, {"x": x}).values()
    assert np.isnan(found[3:5]).all()
    np.testing.assert_allclose(found[[0, 1, 2, 5]], expected[[0, 1, 2, 5]], rtol=1e-4, atol=1e-4)


def test_columns_of_zeros() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.data(5, 40), sketch.number(0.0, (40, 20))))
    assert not results(paired(graph), random_feeds(graph)["x"]).any()


def test_parts_of_weights() -> None:
    """Pairs lie about a vector apart, and what is left over stays as it is; columns are scaled by powers of two."""
    weights = np.arange(2, 2 + 100 * 3, dtype=np.float32).reshape(100, 3)
    first, second, third, rest, scale, shift = weight_parts(weights)
    assert first.shape == second.shape == third.shape == (3, 11, 3) and rest.shape == (1, 3)
    np.testing.assert_array_equal(second[1] * scale, weights[44:55])
    np.testing.assert_array_equal(np.log2(scale) % 1, np.zeros((1, 3)))
    np.testing.assert_allclose(shift[0], (first * second).sum(axis=(0, 1)), rtol=1e-6)


def test_declines() -> None:
    sketch = Sketch()
    x = sketch.data(4, 30)
    check_declines(paired, sketch.graph(sketch.op("MatMul", x, sketch.data(30, 5, name="w"))))
    sketch = Sketch()
    check_declines(paired, sketch.graph(sketch.op("MatMul", sketch.data(Sym("n", 1), 30), sketch.weights(30, 5))))
    sketch = Sketch()
    check_declines(
        paired, sketch.graph(sketch.op("MatMul", sketch.data(4, 30, dtype=F64), sketch.weights(30, 5, dtype=F64)))
    )
    sketch = Sketch()
    check_declines(paired, sketch.graph(conv(sketch, sketch.data(1, 30, 4, 4), 8, (1, 1), pad=1)))
    sketch = Sketch()
    check_declines(paired, sketch.graph(conv(sketch, sketch.data(1, 30, 4, 4), 8, (1, 1), group=2)))


def test_nodes_without_operands() -> None:
    sketch = Sketch()
    check_declines(paired, sketch.graph(sketch.op("Iota", shape=(4,), axis=0, dtype=F32)))


def test_what_a_node_multiplies() -> None:
    assert try_product(product(7, 50, 33, 3).nodes[0]) == Product(3, 7, 50, 33)
    assert try_product(pointwise(37, 20, (7, 6), (2, 2)).nodes[0]) == Product(1, 24, 37, 20)
