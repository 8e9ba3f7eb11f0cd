"""Weights of groups get a dimension for the groups: results stay the same, and what is read otherwise stays whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.link_program import link_program, lower_program
from foretell.loops.lower_graph import buffer_of
from foretell.loops.part_constants import part_constants
from foretell.loops.stages import TensorStage, flatten, inline
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.image_graphs import conv
from tests.tolerances import assert_close

TARGET = resolve_target("native")


def grouped(channels: int, filters: int, size: int, group: int, kernel: int = 3, stride: int = 1) -> Graph:
    sketch = Sketch()
    return sketch.graph(conv(sketch, sketch.data(1, channels, size, size), filters, kernel, group=group, stride=stride))


def parted(graph: Graph) -> list[TensorStage]:
    stages = inline(flatten(graph.nodes, buffer_of), frozenset(map(buffer_of, graph.outputs)))
    return part_constants(stages, frozenset(value.name for value in graph.constants))


def test_groups_have_a_dimension_of_their_own() -> None:
    (sums,) = (stage for stage in parted(grouped(6, 8, 5, 2)) if stage.reduction == "sum")
    assert str(sums).endswith("mul(%x[n.0, c.0 + 3*g.0, k0.0 + s0.0, k1.0 + s1.0], %w[g.0, o.0, c.0, k0.0, k1.0])")


def test_declines_what_is_read_otherwise() -> None:
    for graph in (grouped(6, 8, 5, 1), grouped(6, 6, 5, 6)):
        stages = inline(flatten(graph.nodes, buffer_of), frozenset(map(buffer_of, graph.outputs)))
        assert parted(graph) == stages


def test_declines_where_somebody_reads_it_whole() -> None:
    sketch = Sketch()
    w = sketch.weights(8, 3, 1, 1)
    window = dict(strides=(1, 1), dilations=(1, 1), before=(0, 0), after=(0, 0))
    one = sketch.op("Conv", sketch.data(1, 6, 4, 4), w, group=2, **window)
    other = sketch.op("Conv", sketch.data(1, 3, 4, 4, name="y"), w, group=1, **window)
    loads = [load for stage in parted(sketch.graph(one, other)) for load in stage.loads]
    assert {len(load.indices) for load in loads if load.source in [buffer_of(w)]} == {4}


@pytest.mark.parametrize("group", [2, 4])
def test_weights_of_groups_are_packed(group: int) -> None:
    graph = grouped(128, 128, 7, group)
    assert any("[" in name for name in lower_program(graph, TARGET).packed)


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 19), st.integers(3, 7), st.sampled_from([1, 3]))
def test_same_results(group: int, inputs: int, outputs: int, size: int, kernel: int) -> None:
    graph = grouped(group * inputs, group * outputs, size, group, kernel)
    feeds = random_feeds(graph)
    (expected,) = evaluate(graph, feeds).values()
    assert_close(link_program(graph, TARGET, threads=2)(**feeds), expected, F32, inputs * kernel * kernel)
