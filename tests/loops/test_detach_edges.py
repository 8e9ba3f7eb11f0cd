"""Copies at the edges of a program: which are made, and which disappear again."""

from __future__ import annotations

from foretell.graph.nodes import Graph
from foretell.ir.dtypes import I64
from foretell.loops.choose_layouts import choose_layouts
from foretell.loops.detach_edges import Detached, attach_edges, detach_edges
from foretell.loops.lower_graph import buffer_of
from foretell.loops.stages import TensorStage, flatten, inline
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.image_graphs import check_kernels, conv


def stages_of(graph: Graph) -> list[TensorStage]:
    return inline(flatten(graph.nodes, buffer_of), frozenset(map(buffer_of, graph.outputs)))


def detached(graph: Graph) -> Detached:
    constants = frozenset(value.name for value in graph.constants)
    return detach_edges(stages_of(graph), frozenset(map(buffer_of, graph.outputs)), constants)


def chosen(graph: Graph) -> dict[str, str]:
    constants = frozenset(value.name for value in graph.constants)
    kept = frozenset(map(buffer_of, graph.outputs))
    return {s.buffer.name: str(s.buffer.type) for s in choose_layouts(stages_of(graph), kept, constants, 8)}


def test_copies_of_inputs_and_outputs_come_and_go() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Relu", conv(sketch, sketch.data(1, 3, 9, 9), 4)))
    parted = detached(graph)
    assert set(parted.inputs) == {"x.inside"} and set(parted.outputs) == {"relu.inside"}
    assert [stage.buffer.name for stage in parted.stages if parted.is_edge(stage)] == ["x.inside", "relu"]
    assert attach_edges(parted.stages, parted) == stages_of(graph)


def test_a_convolution_with_a_stride_is_transposed_at_both_ends() -> None:
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(1, 32, 29, 29), 32, stride=2, bias=False))
    assert chosen(graph) == {
        "x.inside": "f32[1, 29, 29, 32]",
        "conv.inside": "f32[1, 14, 14, 32]",
        "conv": "f32[1, 32, 14, 14]",
    }


def test_only_what_is_read_is_copied() -> None:
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(1, 32, 29, 28), 48, 1, stride=2, bias=False))
    parted = detached(graph)
    copy, product, *_ = parted.stages
    assert str(copy.buffer.type) == "f32[1, 32, 15, 14]" and not parted.is_edge(copy)
    assert "2*" in str(copy) and "2*" not in str(product)
    assert attach_edges(parted.stages, parted)[0] == copy
    check_kernels(graph, random_feeds(graph))


def test_a_place_that_never_moves_is_no_stride() -> None:
    sketch = Sketch()
    x, y = sketch.data(3, 8, 16), sketch.data(8, 16, name="y")
    last = sketch.op("Slice", x, starts=(2, 0, 0), steps=(1, 1, 1), shape=(1, 8, 16))
    graph = sketch.graph(sketch.op("Einsum", last, y, equation="aij,kj->aik"))
    assert attach_edges(detached(graph).stages, detached(graph)) == stages_of(graph)


def test_every_element_is_copied_for_others_than_sums_of_products() -> None:
    sketch = Sketch()
    x = sketch.data(1, 32, 28, 28)
    halved = sketch.op("Slice", x, starts=(0, 0, 0, 0), steps=(1, 1, 2, 2), shape=(1, 32, 14, 14))
    graph = sketch.graph(sketch.op("Relu", halved))
    assert attach_edges(detached(graph).stages, detached(graph)) == stages_of(graph)


def test_a_pointwise_convolution_stays_as_it_is() -> None:
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(1, 32, 16, 16), 32, 1, bias=False))
    assert set(chosen(graph)) == {"conv"}


def test_dimensions_of_one_size_do_not_look_like_another_order() -> None:
    """A transposed cube has the shape it had before."""
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(33, 33, 33, 33), 32, stride=2, bias=False))
    assert chosen(graph)["x.inside"] == "f32[33, 33, 33, 33]"


def test_declines_what_data_reads_and_matrices() -> None:
    sketch = Sketch()
    table, places = sketch.data(7, 3, 4), sketch.data(5, dtype=I64, name="places")
    matrix = sketch.op("Relu", sketch.data(5, 4, name="m"))
    graph = sketch.graph(sketch.op("Gather", table, places, axis=0), matrix)
    assert not detached(graph).inputs


def test_a_result_that_is_read_again() -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 16, 11, 11), 16, stride=2, bias=False)
    graph = sketch.graph(y, sketch.op("Relu", conv(sketch, y, 16, stride=2, bias=False)))
    check_kernels(graph, random_feeds(graph))
