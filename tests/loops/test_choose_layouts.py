"""Orders of dimensions: which are chosen, which tensors keep theirs, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from foretell.graph.nodes import Array, Graph
from foretell.ir.dtypes import I64
from foretell.ir.expr import Sym
from foretell.loops.choose_layouts import choose_layouts
from foretell.loops.lower_graph import buffer_of
from foretell.loops.stages import TensorStage, flatten, inline
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.image_graphs import SIZES, check_kernels, conv, image_graphs, pool


def chosen(graph: Graph, lanes: int = 8) -> list[TensorStage]:
    kept = frozenset(map(buffer_of, graph.outputs))
    constants = frozenset(value.name for value in graph.constants)
    return choose_layouts(inline(flatten(graph.nodes, buffer_of), kept), kept, constants, lanes)


def shapes(graph: Graph, lanes: int = 8) -> dict[str, str]:
    return {stage.buffer.name: str(stage.buffer.type) for stage in chosen(graph, lanes)}


def depthwise() -> Graph:
    """Pointwise, depthwise with stride 2, pointwise: channels last in between."""
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(1, 3, 9, 9), 16, 1))
    x = conv(sketch, x, 16, 3, stride=2, group=16, bias=False)
    return sketch.graph(sketch.op("ReduceMean", conv(sketch, x, 32, 1, bias=False), axes=(2, 3), keepdims=False))


def test_channels_last_between_convolutions() -> None:
    assert "\n".join(map(str, chosen(depthwise()))) == text(
        """
        %conv.0.sum[n.0<1, s0.0<9, s1.0<9, o.0<16]: f32 = sum[c.0<3, k0.0<1, k1.0<1] \
mul(%x[n.0, c.0, k0.0 + s0.0, k1.0 + s1.0], %w[o.0, c.0, k0.0, k1.0])
        %relu[i0.2<1, i2.2<9, i3.2<9, i1.2<16]: f32 = \
max(add(%conv.0.sum[i0.2, i2.2, i3.2, i1.2], %w_1[i1.2]), 0.0:f32)
        %conv_1[n.3<1, s0.3<4, s1.3<4, o.3<16]: f32 = sum[c.3<1, k0.3<3, k1.3<3] \
mul(%relu[n.3, k0.3 + 2*s0.3, k1.3 + 2*s1.3, c.3 + o.3], %w_2[o.3, c.3, k0.3, k1.3])
        %conv_2[n.4<1, s0.4<4, s1.4<4, o.4<32]: f32 = sum[c.4<16, k0.4<1, k1.4<1] \
mul(%conv_1[n.4, k0.4 + s0.4, k1.4 + s1.4, c.4], %w_3[o.4, c.4, k0.4, k1.4])
        %reducemean.0.sum[i0.5<1, i1.5<32]: f32 = sum[r2.5<4, r3.5<4] %conv_2[i0.5, r2.5, r3.5, i1.5]
        %reducemean[i0.6<1, i1.6<32]: f32 = div(%reducemean.0.sum[i0.6, i1.6], f32(index(16)))
        """
    )


def test_keys_are_transposed_where_they_are_made() -> None:
    """Scores run in vectors along the keys; nothing else moves."""
    sketch = Sketch()
    x = sketch.data(1, 64, 32)
    queries, keys = (sketch.op("MatMul", x, sketch.weights(32, 32, seed=seed)) for seed in (1, 2))
    scores = sketch.op("Einsum", queries, keys, equation="bik,bjk->bij")
    assert shapes(sketch.graph(sketch.op("Softmax", scores, axis=2)))["matmul_1"] == "f32[1, 32, 64]"
    assert shapes(sketch.graph(sketch.op("Softmax", scores, axis=2)))["matmul"] == "f32[1, 64, 32]"


def test_a_pointwise_convolution_of_a_small_image_is_computed_as_it_lies() -> None:
    """Vectors run along all 196 places; copying the result would cost more than the few lanes that stay empty."""
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(1, 64, 14, 14), 256, 1, bias=False))
    assert set(shapes(graph, 16).values()) == {"f32[1, 256, 14, 14]"}


def test_a_border_keeps_rows_of_an_image_apart() -> None:
    """The same before a padded convolution: vectors would end with each row of 14."""
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(1, 64, 14, 14), 256, 1))
    graph = sketch.graph(conv(sketch, x, 256, 3, pad=1, group=256))
    assert shapes(graph, 16)["relu"] == "f32[1, 14, 14, 256]"


def test_a_stage_is_stored_in_the_order_of_its_axes() -> None:
    for stage in chosen(depthwise()):
        assert stage.place == tuple(axis.sym for axis in stage.axes)
        assert stage.buffer.shape == tuple(axis.extent for axis in stage.axes)


# --- declines ------------------------------------------------------------------------------------------------


def test_declines_inputs_outputs_and_constants() -> None:
    graph = depthwise()
    moved = {stage.buffer.name for stage in chosen(graph) if stage.buffer.shape != buffer_shape(graph, stage)}
    assert moved == {"conv.0.sum", "relu", "conv_1", "conv_2"}


def buffer_shape(graph: Graph, stage: TensorStage) -> tuple[object, ...]:
    (given_stage,) = (s for s in flatten(graph.nodes, buffer_of) if s.buffer.name == stage.buffer.name)
    return given_stage.buffer.shape


def test_what_is_visible_outside_stays_as_it_is() -> None:
    sketch = Sketch()
    x = conv(sketch, sketch.data(1, 3, 9, 9), 16, 1, bias=False)
    y = conv(sketch, x, 16, 3, stride=2, group=16, bias=False)
    found = shapes(sketch.graph(x, y))
    assert (found[x.name], found[y.name]) == ("f32[1, 16, 9, 9]", "f32[1, 16, 4, 4]")


def test_declines_where_data_decides_what_is_read() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(1, 3, 9, 9), 16, 1))
    rows = sketch.op("Gather", x, sketch.data(4, dtype=I64, name="i"), axis=2)
    graph = sketch.graph(conv(sketch, rows, 16, 3, stride=2, group=16))
    assert shapes(graph)["relu"] == "f32[1, 16, 9, 9]"


def test_declines_a_perceptron() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.op("MatMul", sketch.data(2, 16, 32), sketch.weights(32, 64)))
    graph = sketch.graph(sketch.op("MatMul", x, sketch.weights(64, 8)))
    assert chosen(graph) == inline(flatten(graph.nodes, buffer_of), frozenset(map(buffer_of, graph.outputs)))


def test_declines_rows_of_a_softmax() -> None:
    sketch = Sketch()
    x = sketch.op("MatMul", sketch.data(2, 40, 32), sketch.weights(32, 64))
    graph = sketch.graph(sketch.op("Transpose", sketch.op("Softmax", x, axis=2), perm=(0, 2, 1)))
    assert all(shape in ("f32[2, 40, 64]", "f32[2, 40]", "f32[2, 64, 40]") for shape in shapes(graph).values())
    assert shapes(graph)["matmul"] == "f32[2, 40, 64]"


def test_declines_channels_that_would_leave_lanes_empty() -> None:
    """Three channels of 32 by 32: rows are longer than pixels."""
    sketch = Sketch()
    x = sketch.op("Sigmoid", sketch.data(1, 3, 34, 34))
    assert shapes(sketch.graph(pool(sketch, "MaxPool", pool(sketch, "MaxPool", x))))["maxpool"] == "f32[1, 3, 33, 33]"


# --- results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [2, 4, 16])
def test_depthwise(lanes: int) -> None:
    graph = depthwise()
    check_kernels(graph, random_feeds(graph), lanes)


def test_unknown_sizes() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(Sym("n", 1), 3, Sym("h", 4), Sym("w", 4)), 8, pad=1))
    graph = sketch.graph(sketch.op("Add", x, conv(sketch, x, 8, pad=1, group=8)))
    check_kernels(graph, random_feeds(graph, SIZES))


def test_a_reshape_reads_what_was_moved() -> None:
    sketch = Sketch()
    x = conv(sketch, sketch.op("Relu", conv(sketch, sketch.data(1, 2, 5, 5), 8)), 8, 2, stride=2, group=8)
    graph = sketch.graph(sketch.op("MatMul", sketch.op("Reshape", x, shape=(1, 8)), sketch.weights(8, 3)))
    check_kernels(graph, random_feeds(graph))


def test_shuffled_channels_of_groups() -> None:
    sketch = Sketch()
    x = conv(sketch, sketch.data(1, 4, 5, 5), 8, 1, group=2)
    x = sketch.op(
        "Reshape",
        sketch.op("Transpose", sketch.op("Reshape", x, shape=(1, 2, 4, 5, 5)), perm=(0, 2, 1, 3, 4)),
        shape=(1, 8, 5, 5),
    )
    graph = sketch.graph(conv(sketch, conv(sketch, x, 8, 3, stride=2, pad=1, group=8), 4, 1))
    check_kernels(graph, random_feeds(graph))


@settings(max_examples=25, deadline=None)
@given(image_graphs(channels=(1, 3, 4, 8)))
def test_random_networks(drawn: tuple[Graph, dict[str, Array]]) -> None:
    graph, feeds = drawn
    check_kernels(graph, feeds, lanes=2 if np.prod([*feeds["x"].shape]) % 2 else 4)
