"""Vector loops that read from several places in turn: one store for each, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Index, Load, Scalar, Select
from foretell.link_program import link_program
from foretell.loops.interleave import interleaved
from foretell.loops.nodes import Block, For, Kernel, Store
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch
from tests.random_graphs import assert_agrees, random_data
from tests.schedule.nests import run_interpreted, run_native

LANE = Sym("i", 0, 115)
A, B, Y = (Buffer(name, F32, (size,)) for name, size in (("a", 58), ("b", 58), ("y", 116)))


def vector_loop(value: Scalar, extent: Dim = 116) -> For:
    return For(LANE, extent, "vector", Block((Store(Y, (LANE,), value),)))


def shuffled(period: int) -> Scalar:
    """Element i of both buffers, one after the other, as if they were columns."""
    place = 116 // period * (LANE % period) + LANE // period
    later = Load(B, (place - 58,), F32)
    return Select(Apply("lt", (Index(place), Index(58))), Load(A, (place,), F32), later)


def test_a_shuffle_of_channels() -> None:
    kernel = Kernel("k", (A, B), (Y,), interleaved(vector_loop(shuffled(2))))
    assert [line.strip() for line in str(kernel).splitlines()[1:-1]] == [
        "for i.2 < 58 vector:",
        "%y[2*i.2] = %a[i.2]",
        "%y[2*i.2 + 1] = %b[i.2]",
    ]


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(vector_loop(Load(A, (LANE // 2,), F32)), id="no remainder"),
        pytest.param(vector_loop(Load(A, (LANE % 58,), F32)), id="a long period"),
        pytest.param(vector_loop(shuffled(2), Sym("n", 1, 116)), id="an unknown extent"),
        pytest.param(vector_loop(shuffled(2), 115), id="an odd extent"),
    ],
)
def test_declines(loop: For) -> None:
    assert interleaved(loop) is loop


@pytest.mark.parametrize("period", [2, 4])
def test_means_the_same(period: int) -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.random(58, np.float32) for name in "ab"}
    before = Kernel("k", (A, B), (Y,), vector_loop(shuffled(period)))
    after = Kernel("k", (A, B), (Y,), interleaved(vector_loop(shuffled(period))))
    expected = run_interpreted(before, feeds)
    np.testing.assert_array_equal(run_interpreted(after, feeds), expected)
    np.testing.assert_array_equal(run_native(after, feeds, np.empty(116, np.float32)), expected)


def shuffle_graph(channels: int, groups: int) -> Graph:
    """Two halves of an image's channels, mixed as ShuffleNet does."""
    sketch = Sketch()
    halves = [sketch.data(1, channels // 2, 5, 3) for _ in range(2)]
    whole = sketch.op("Concat", *(sketch.op("Relu", half) for half in halves), axis=1)
    parts = sketch.op("Reshape", whole, shape=(1, groups, channels // groups, 5, 3))
    turned = sketch.op("Transpose", parts, perm=(0, 2, 1, 3, 4))
    return sketch.graph(sketch.op("Reshape", turned, shape=(1, channels, 5, 3)))


@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize("channels", [12, 24, 132])
def test_graphs(channels: int, groups: int) -> None:
    graph, rng = shuffle_graph(channels, groups), np.random.default_rng(0)
    feeds = {value.name: random_data(value.type.static_shape, F32, rng) for value in graph.inputs}
    assert_agrees(graph, feeds, list(link_program(graph, resolve_target("native"), 1).run(feeds).values()))
