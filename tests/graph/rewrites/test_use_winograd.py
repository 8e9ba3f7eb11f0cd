from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph, Value
from foretell.graph.ops.winograd import transform_additions
from foretell.graph.rewrites.use_winograd import use_winograd, weights_in_phases
from foretell.ir.dtypes import F32, F64
from foretell.ir.expr import Dim, Sym
from foretell.link_program import link_program
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, check_declines, operators, random_feeds, text
from tests.loops.image_graphs import pool
from tests.tolerances import assert_close

TARGET = resolve_target("native")
OPS = ["WinogradInput", "MatMul", "WinogradOutput"]
PADS = {"none": (0, 0, 0, 0), "same": (1, 1, 1, 1), "uneven": (2, 0, 0, 1)}


GOLDEN = """
    graph test(%x: f32[1, 2, 5, 5]) {
    %winogradinput: f32[16, 1, 2, 2, 2] = WinogradInput(%x) {tile=(2, 2), kernel=(3, 3), shape=(3, 3), before=(0, 0)}
    %matmul: f32[16, 1, 2, 2, 1] = MatMul(%winogradinput, %c)
    %winogradoutput: f32[1, 1, 3, 3] = WinogradOutput(%matmul, %w_1) {tile=(2, 2), kernel=(3, 3), shape=(3, 3)}
    return y0=%winogradoutput
    }
"""

GOLDEN_STRIDES = """
    graph test(%x: f32[1, 1, 5, 3]) {
    %phases: f32[1, 4, 3, 2] = Phases(%x) {strides=(2, 2), before=(0, 0), shape=(3, 2)}
    %input: f32[9, 1, 1, 1, 4] = WinogradInput(%phases) {tile=(2, 2), kernel=(2, 2), shape=(2, 1), before=(0, 0)}
    %matmul: f32[9, 1, 1, 1, 1] = MatMul(%input, %c)
    %winogradoutput: f32[1, 1, 2, 1] = WinogradOutput(%matmul, %w_1) {tile=(2, 2), kernel=(2, 2), shape=(2, 1)}
    return y0=%winogradoutput
    }
"""


def conv(
    sketch: Sketch,
    x: Value,
    outputs: int,
    kernel: tuple[int, ...] = (3, 3),
    pads: tuple[int, ...] = (1,) * 4,
    strides: tuple[int, ...] | None = None,
) -> Value:
    channels, rank = x.shape[1], len(kernel)
    assert isinstance(channels, int)
    return sketch.op(
        "Conv",
        x,
        sketch.weights(outputs, channels, *kernel, seed=3),
        sketch.weights(outputs),
        strides=strides or (1,) * rank,
        dilations=(1,) * rank,
        before=pads[:rank],
        after=pads[rank:],
        group=1,
    )


def tiled(graph: Graph, results: int) -> Graph:
    return use_winograd(graph, lambda convolution: results)


def check(graph: Graph, results: int) -> None:
    """Evaluated and compiled, tiles agree with the convolution within what F(6, 3) amplifies rounding by."""
    after, feeds = tiled(graph, results), random_feeds(graph)
    assert "Conv" not in operators(after)
    expected = evaluate(graph, feeds)
    for each in (evaluate(after, feeds), link_program(after, TARGET, 2).run(feeds)):
        for name, array in expected.items():
            assert_close(each[name], array, F32, terms=1 << 12, scale=1.0)


@pytest.mark.parametrize("results", [2, 3, 4, 6])
@pytest.mark.parametrize(("size", "pads"), [((3, 5), "none"), ((14, 7), "same"), ((2, 13), "uneven"), ((5, 4), "same")])
def test_awkward_sizes(size: tuple[int, int], pads: str, results: int) -> None:
    sketch = Sketch()
    check(sketch.graph(conv(sketch, sketch.data(2, 3, *size), 17, pads=PADS[pads])), results)


@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (1, 17), (17, 1), (17, 3), (3, 16), (32, 32)])
@pytest.mark.parametrize("results", [2, 4])
def test_awkward_channels(results: int, channels: int, outputs: int) -> None:
    sketch = Sketch()
    check(sketch.graph(conv(sketch, sketch.data(1, channels, 7, 9), outputs)), results)


@pytest.mark.parametrize("size", [1, 2])
def test_an_image_smaller_than_the_kernel(size: int) -> None:
    sketch = Sketch()
    check(sketch.graph(conv(sketch, sketch.data(1, 4, size, size), 5)), 4)


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [((1, 3), (5, 9)), ((3, 1), (5, 9)), ((2, 2), (6, 7)), ((5, 5), (11, 8)), ((3,), (23,)), ((4,), (9,))],
    ids=str,
)
@pytest.mark.parametrize("results", [2, 4])
def test_other_kernels(kernel: tuple[int, ...], shape: tuple[int, ...], results: int) -> None:
    sketch = Sketch()
    pads = tuple((taps - 1) // 2 for taps in kernel) * 2
    check(sketch.graph(conv(sketch, sketch.data(2, 5, *shape), 6, kernel, pads)), results)


@pytest.mark.parametrize(
    ("kernel", "strides", "shape", "pads"),
    [
        ((3, 3), (2, 2), (9, 12), (1, 1, 1, 1)),
        ((7, 7), (2, 2), (17, 14), (3, 3, 3, 3)),
        ((3, 3), (2, 1), (7, 5), (0, 2, 1, 0)),
        ((5, 2), (3, 2), (23, 6), (2, 0, 2, 0)),  # a stride that no tap reaches across
        ((2, 2), (2, 2), (8, 9), (0, 0, 0, 0)),  # one tap in each phase along both axes
        ((3,), (2,), (23,), (1, 1)),
        ((3, 3), (3, 3), (13, 13), (0, 0, 0, 0)),  # the last of the data takes no part
    ],
    ids=str,
)
@pytest.mark.parametrize("results", [2, 4])
def test_strides(
    kernel: tuple[int, ...], strides: tuple[int, ...], shape: tuple[int, ...], pads: tuple[int, ...], results: int
) -> None:
    sketch = Sketch()
    check(sketch.graph(conv(sketch, sketch.data(2, 3, *shape), 17, kernel, pads, strides)), results)


def test_golden_strides() -> None:
    sketch = Sketch()
    graph = tiled(sketch.graph(conv(sketch, sketch.data(1, 1, 5, 3), 1, pads=(0,) * 4, strides=(2, 2))), 2)
    lines = [line.strip() for line in str(graph).splitlines() if "constant" not in line]
    lines = [line.replace("%winogradinput", "%input") for line in lines]
    assert "\n".join(lines) == text(GOLDEN_STRIDES)


def test_weights_in_phases() -> None:
    """Taps 0 and 2, and tap 1 with a zero."""
    found = weights_in_phases(np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]), (2,))
    assert found.tolist() == [[[1.0, 3.0], [4.0, 6.0], [2.0, 0.0], [5.0, 0.0]]]


def with_readers(case: str) -> Graph:
    sketch = Sketch()
    x = sketch.data(1, 8, 9, 10)
    y = conv(sketch, x, 8)
    match case:
        case "relu":
            return sketch.graph(sketch.op("Relu", y))
        case "residual":
            return sketch.graph(sketch.op("Relu", sketch.op("Add", y, x)))
        case "several":
            return sketch.graph(sketch.op("Add", sketch.op("Exp", y), conv(sketch, y, 8)), sketch.op("Sigmoid", y))
        case "another convolution":
            return sketch.graph(conv(sketch, sketch.op("Relu", y), 3))
        case "a pool":
            return sketch.graph(pool(sketch, "MaxPool", y, 2, stride=2))
        case "a slice":
            return sketch.graph(sketch.op("Slice", y, starts=(0, 0, 1, 0), steps=(1, 1, 1, 1), shape=(1, 8, 8, 10)))
        case _:
            assert case == "channels last"
            moved = sketch.op("Transpose", sketch.data(1, 9, 10, 8, name="m"), perm=(0, 3, 1, 2))
            return sketch.graph(sketch.op("Transpose", conv(sketch, moved, 8), perm=(0, 2, 3, 1)))


@pytest.mark.parametrize(
    "case", ["relu", "residual", "several", "another convolution", "channels last", "a pool", "a slice"]
)
@pytest.mark.parametrize("results", [2, 4])
def test_with_what_reads_it(case: str, results: int) -> None:
    check(with_readers(case), results)


def test_golden() -> None:
    sketch = Sketch()
    graph = tiled(sketch.graph(conv(sketch, sketch.data(1, 2, 5, 5), 1, pads=(0,) * 4)), 2)
    lines = [line.strip() for line in str(graph).splitlines() if "constant" not in line]
    assert "\n".join(lines) == text(GOLDEN)


@pytest.mark.parametrize(
    ("tile", "kernel", "additions"), [((2, 2), (3, 3), (32, 24)), ((4, 4), (3, 3), (144, 100)), ((2,), (3,), (4, 4))]
)
def test_sums_share_what_they_can(tile: tuple[int, ...], kernel: tuple[int, ...], additions: tuple[int, int]) -> None:
    assert transform_additions(tile, kernel) == additions


def declined(case: str) -> Graph:
    sketch = Sketch()
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "group": 1}
    dtype, height, dim = F32, 6, Sym("h", 3)
    shape: tuple[Dim, ...] = (1, 4, height, 6)
    weights = sketch.weights(4, 4, 3, 3)
    match case:
        case "dilations":
            attrs["dilations"] = (1, 2)
        case "groups":
            attrs["group"], weights = 2, sketch.weights(4, 2, 3, 3)
        case "negative padding":
            attrs["before"] = (-1, 0)
        case "data as weights":
            weights = sketch.data(4, 4, 3, 3, name="w")
        case "float64":
            dtype, weights = F64, sketch.weights(4, 4, 3, 3, dtype=F64)
        case "an unknown size":
            shape = (1, 4, dim, 6)
        case _:
            assert case == "an unknown batch"
            shape = (Sym("n", 1), 4, 6, 6)
    return sketch.graph(sketch.op("Conv", sketch.data(*shape, dtype=dtype), weights, **attrs))


@pytest.mark.parametrize(
    "case",
    [
        "dilations",
        "groups",
        "negative padding",
        "data as weights",
        "float64",
        "an unknown size",
        "an unknown batch",
    ],
)
def test_declines(case: str) -> None:
    check_declines(partial(use_winograd, choose=lambda convolution: 4), declined(case))


def test_nothing_is_chosen() -> None:
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(1, 2, 5, 5), 3))
    check_declines(partial(use_winograd, choose=lambda convolution: 0), graph)


def test_what_is_not_a_number_stays_in_its_tiles() -> None:
    sketch = Sketch()
    graph = tiled(sketch.graph(conv(sketch, sketch.data(1, 2, 16, 16), 3)), 4)
    feeds = random_feeds(graph)
    feeds["x"] = np.array(feeds["x"])
    feeds["x"][0, 1, 1, 1] = np.nan
    found = link_program(graph, TARGET).run(feeds)["y0"]
    assert np.isnan(found[0, :, :3, :3]).all() and np.isfinite(found[0, :, 4:, 4:]).all()
