"""Padding as a border of the producer's buffer: what is stored where, what declines, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from foretell.graph.nodes import Array, Graph, Value
from foretell.ir.dtypes import I64
from foretell.ir.expr import Sym
from foretell.link_program import link_program
from foretell.loops.lower_graph import buffer_of
from foretell.loops.stages import TensorStage, flatten, inline
from foretell.loops.widen_buffers import widen_buffers
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.image_graphs import SIZES, check_kernels, conv, image_graphs, pool
from tests.loops.kernels import kernels_of
from tests.random_graphs import assert_agrees

TARGET = resolve_target("native")


def before(graph: Graph) -> list[TensorStage]:
    return inline(flatten(graph.nodes, buffer_of), frozenset(map(buffer_of, graph.outputs)))


def widened(graph: Graph) -> list[TensorStage]:
    return widen_buffers(before(graph), frozenset(map(buffer_of, graph.outputs)))


def printed(stages: list[TensorStage]) -> str:
    return "\n".join(f"[{', '.join(map(str, stage.place))}] {stage}" for stage in stages)


def is_padded(graph: Graph) -> bool:
    """Whether some stage still copies a tensor into a wider one."""
    return any("select" in str(stage.body) for stage in widened(graph))


def padded(sketch: Sketch, x: Value, size: int) -> Value:
    """A line with zeros at both ends."""
    return sketch.op("Pad", x, before=(size,), after=(size,), mode="constant")


def line() -> tuple[Sketch, Value]:
    """A tensor that one stage here makes, and that is read twice."""
    sketch = Sketch()
    return sketch, sketch.op("Exp", sketch.data(5))


def test_a_line_is_stored_between_its_borders() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.data(1, 2, 5))
    graph = sketch.graph(sketch.op("Add", conv(sketch, x, 2, pad=1, bias=False), x))
    assert printed(widened(graph)) == text(
        """
        [i0.0, i1.0, i2.0 + 1] %conv.0.padded[i0.0<1, i1.0<2, i2.0<5]: f32 = max(%x[i0.0, i1.0, i2.0], 0.0:f32)
        [i0.1.2b, i1.1.2b, i2.1.2b] %conv.0.padded[i0.1.2b<1, i1.1.2b<2, i2.1.2b<1]: f32 = 0:f32
        [i0.1.2a, i1.1.2a, i2.1.2a + 6] %conv.0.padded[i0.1.2a<1, i1.1.2a<2, i2.1.2a<1]: f32 = 0:f32
        [n.2, o.2, s0.2] %conv[n.2<1, o.2<2, s0.2<5]: f32 = sum[c.2<2, k0.2<3] \
mul(%conv.0.padded[n.2, c.2, k0.2 + s0.2], %w[o.2, c.2, k0.2])
        [i0.3, i1.3, i2.3] %add[i0.3<1, i1.3<2, i2.3<5]: f32 = \
add(%conv[i0.3, i1.3, i2.3], %conv.0.padded[i0.3, i1.3, i2.3 + 1])
        """
    )


def test_a_convolution_stores_into_the_border_of_the_next_in_one_kernel() -> None:
    """Sum, bias and relu; slabs above and below; slabs left and right; sum and bias."""
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(1, 3, 9, 9), 4))
    y = sketch.op("Sin", conv(sketch, x, 4, pad=1))
    kernels = [kernel for kernel in kernels_of(sketch.graph(y), 4) if "inside" not in kernel.name]
    assert [kernel.name for kernel in kernels] == [*["conv_1.0.padded"] * 3, "sin"]
    assert "sum=" in str(kernels[0]) and "max(" in str(kernels[0])


def test_unknown_sizes() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.data(Sym("n", 1), 2, Sym("h", 1), Sym("w", 1)))
    graph = sketch.graph(conv(sketch, x, 3, pad=1))
    assert not is_padded(graph)
    check_kernels(graph, random_feeds(graph, SIZES))


def test_paddings_of_one_value_share_the_widest_border() -> None:
    sketch, x = line()
    graph = sketch.graph(sketch.op("Sin", padded(sketch, x, 1)), sketch.op("Cos", padded(sketch, x, 2)))
    stages = widen_buffers(flatten(graph.nodes, buffer_of), frozenset(map(buffer_of, graph.outputs)))
    assert {str(stage.buffer.type) for stage in stages if "pad" in stage.buffer.name} == {"f32[9]"}
    assert "sin(%pad[i0.2 + 1])" in printed(stages) and "cos(%pad[i0.4])" in printed(stages)


def test_a_padding_of_another_value_reads_the_first() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.data(1, 2, 5))
    graph = sketch.graph(conv(sketch, x, 2, pad=1), pool(sketch, "MaxPool", x, 3, pad=1))
    assert "%conv.0.padded[i0.4, i1.4, i2.4], -inf:f32)" in printed(widened(graph))
    check_kernels(graph, random_feeds(graph))


def test_an_output_may_have_the_border() -> None:
    sketch, x = line()
    graph = sketch.graph(padded(sketch, x, 1), sketch.op("Sin", x))
    assert [str(stage.buffer) for stage in widened(graph)] == ["%pad", "%pad", "%pad", "%sin"]
    check_kernels(graph, random_feeds(graph))


# --- declines ------------------------------------------------------------------------------------------------


def test_declines_an_input() -> None:
    sketch = Sketch()
    assert is_padded(sketch.graph(conv(sketch, sketch.data(1, 2, 5), 2, pad=1)))


def test_declines_what_is_visible_outside() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.data(1, 2, 5))
    assert is_padded(sketch.graph(x, conv(sketch, x, 2, pad=1)))


def test_declines_a_fill_that_is_computed() -> None:
    sketch, x = line()
    wide = sketch.op("Pad", x, sketch.data(name="v"), before=(1,), after=(1,), mode="constant")
    assert is_padded(sketch.graph(sketch.op("Mul", wide, wide), sketch.op("Sin", x)))


def test_declines_what_data_reads() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.data(1, 2, 5))
    rows = sketch.op("Gather", x, sketch.data(3, dtype=I64, name="i"), axis=2)
    assert is_padded(sketch.graph(rows, conv(sketch, x, 2, pad=1)))


def test_declines_rows_that_share_loops_with_what_they_are_normalised_by() -> None:
    sketch = Sketch()
    x = sketch.op("Softmax", sketch.data(1, 20, 30), axis=2)
    assert is_padded(sketch.graph(conv(sketch, x, 2, pad=1)))


def test_declines_a_padding_of_a_padding() -> None:
    sketch = Sketch()
    x = sketch.op("Relu", sketch.data(1, 2, 5))
    first = sketch.op("Pad", x, before=(0, 0, 1), after=(0, 0, 1), mode="constant")
    graph = sketch.graph(conv(sketch, first, 2, pad=1))
    assert is_padded(graph)
    check_kernels(graph, random_feeds(graph))


# --- results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pools_that_leave_out_the_end(op: str, stride: int) -> None:
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(1, 2, 8, 9), 3))
    graph = sketch.graph(pool(sketch, op, x, 2, stride=stride, pad=1), pool(sketch, op, x, 3, stride=stride, pad=1))
    check_kernels(graph, random_feeds(graph))


def test_two_parts_of_a_concatenation_do_not_share_the_loops_of_a_sum() -> None:
    """Found by chance: both stored from the tile of one convolution, which no schedule may then reorder."""
    sketch = Sketch()
    x = conv(sketch, sketch.data(1, 3, 5, 6), 3, 1)
    graph = sketch.graph(sketch.op("Concat", x, sketch.op("Sigmoid", x), axis=1))
    feeds = random_feeds(graph)
    assert_agrees(graph, feeds, list(link_program(graph, TARGET).run(feeds).values()))


@pytest.mark.parametrize("chosen", [(), (2, 0)])
def test_data_decides_what_is_read_of_a_padding(chosen: tuple[int, ...]) -> None:
    """Found by chance: the padding is seen outside besides, so that it would have become its own border."""
    sketch = Sketch()
    padded = sketch.op("Pad", sketch.op("Neg", sketch.data(2, 3)), before=(1, 0), after=(0, 1), mode="constant")
    rows = sketch.op("Gather", padded, sketch.constant(np.array(chosen, np.int64)), axis=0)
    graph = sketch.graph(padded, rows)
    check_kernels(graph, random_feeds(graph))


@settings(max_examples=25, deadline=None)
@given(image_graphs())
def test_random_networks(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check_kernels(*drawn)


@settings(max_examples=12, deadline=None)
@given(image_graphs(channels=(1, 3, 16, 17)))
def test_random_networks_in_machine_code(drawn: tuple[Graph, dict[str, Array]]) -> None:
    graph, feeds = drawn
    assert_agrees(graph, feeds, list(link_program(graph, TARGET).run(feeds).values()))


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(image_graphs(channels=(1, 2, 3, 7, 16, 17, 32)))
def test_many_random_networks_in_machine_code(drawn: tuple[Graph, dict[str, Array]]) -> None:
    graph, feeds = drawn
    assert_agrees(graph, feeds, list(link_program(graph, TARGET).run(feeds).values()))
