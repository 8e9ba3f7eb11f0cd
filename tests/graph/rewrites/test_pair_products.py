"""Products in pairs: the same results with a like error, whatever the sizes and magnitudes; and what declines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.rewrites.pair_products import Product, pair_products, try_product, weight_parts
from foretell.graph.rewrites.use_strassen import use_strassen
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


def windows(
    channels: int, shape: tuple[int, ...], kernel: tuple[int, ...], stride: int = 1, pad: int = 0, dilation: int = 1
) -> Graph:
    sketch, rank = Sketch(), len(shape)
    x, w, b = sketch.data(2, channels, *shape), sketch.weights(19, channels, *kernel), sketch.weights(19, seed=2)
    attrs = {"strides": (stride,) * rank, "dilations": (dilation,) * rank, "group": 1}
    return sketch.graph(sketch.op("Conv", x, w, b, **attrs, before=(pad,) * rank, after=(pad,) * rank))


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
    product = try_product(graph.nodes[0])
    assert product is not None
    terms = 4 * product.length
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


def test_one_tap_with_padding() -> None:
    check(windows(37, (4, 3), (1, 1), stride=2, pad=1))


@pytest.mark.parametrize("channels", [8, 16, 34, 57])
@pytest.mark.parametrize(("kernel", "stride", "pad", "dilation"), [
    ((3, 3), 2, 1, 1), ((3, 3), 1, 0, 1), ((3, 3), 1, 2, 2), ((1, 3), 1, 1, 1), ((3, 1), 3, 0, 1), ((3, 2), 1, 1, 1),
    ((5, 3), 2, 2, 1),
])  # fmt: skip
def test_windows_with_three_taps_along_an_axis(
    channels: int, kernel: tuple[int, int], stride: int, pad: int, dilation: int
) -> None:
    check(windows(channels, (9, 7), kernel, stride, pad, dilation))


def test_windows_in_one_and_three_dimensions() -> None:
    check(windows(24, (11,), (3,), stride=2, pad=1))
    check(windows(16, (5, 4, 5), (3, 3, 3), pad=1))
    check(windows(16, (5, 1, 3), (3, 1, 3), pad=1))


@settings(max_examples=20, deadline=None)
@given(st.integers(8, 64), st.integers(3, 9), st.integers(3, 30), st.integers(1, 3), st.integers(0, 2))
def test_windows_of_any_image(channels: int, height: int, width: int, stride: int, pad: int) -> None:
    graph = windows(channels, (height, width), (3, 3), stride, pad)
    if try_product(graph.nodes[0]) is not None:
        check(graph)


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e18])
def test_each_window_is_scaled_by_itself(size: float) -> None:
    """The last row of the image is a million times as large as the first, and nothing is lost there."""
    graph = windows(48, (9, 9), (3, 3), stride=2)
    x = (random_feeds(graph)["x"] * np.geomspace(1e-6, 1, 9)[:, None] * size).astype(np.float32)
    found, (expected,) = results(paired(graph), x), evaluate(graph, {"x": x}).values()
    bias = graph.constants[graph.nodes[0].present_inputs[2]].reshape(-1, 1, 1)
    exact = expected.astype(np.float64) - bias
    errors = np.abs(found - expected.astype(np.float64)).max(axis=(0, 1, 3))
    assert (errors < 1e-5 * np.abs(exact).max(axis=(0, 1, 3)) + 1e-6 * np.abs(bias).max()).all()


def test_windows_without_numbers() -> None:
    """Zeros give the bias; NaN and infinity spread to the windows that have them, and no further."""
    graph = windows(16, (9, 9), (3, 3), stride=3)
    x = random_feeds(graph)["x"].copy()
    x[:, :, :3, :3] = 0
    x[0, 5, 4, 4], x[1, 3, 8, 8] = np.nan, np.inf
    found, (expected,) = results(paired(graph), x), evaluate(graph, {"x": x}).values()
    lost = np.isnan(found)
    assert lost[0, :, 1, 1].all() and lost[1, :, 2, 2].all() and lost.sum() == 2 * found.shape[1]
    np.testing.assert_allclose(found[~lost], expected[~lost], rtol=1e-4, atol=1e-4)


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
    check_declines(paired, windows(16, (7, 7), (5, 2)))
    check_declines(paired, windows(5, (7, 7), (3, 3)))
    check_declines(paired, windows(16, (7, 7), (3, 3), pad=-1))
    sketch = Sketch()
    check_declines(paired, sketch.graph(conv(sketch, sketch.data(1, 30, 4, 4), 8, (1, 1), group=2)))


def test_nodes_without_operands() -> None:
    sketch = Sketch()
    check_declines(paired, sketch.graph(sketch.op("Iota", shape=(4,), axis=0, dtype=F32)))


def test_what_a_node_multiplies() -> None:
    assert try_product(product(7, 50, 33, 3).nodes[0]) == Product(3, 7, 50, 33)
    assert try_product(pointwise(37, 20, (7, 6), (2, 2)).nodes[0]) == Product(1, 24, 37, 20)
    assert try_product(windows(16, (9, 7), (3, 3), stride=2).nodes[0]) == Product(1, 24, 144, 19)


def test_declines_for_products_of_quarters() -> None:
    check_declines(paired, use_strassen(product(8, 48, 32), lambda halves: 1))
