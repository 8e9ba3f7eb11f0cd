"""Short rows are reduced some at a time, and read again some at a time."""

from __future__ import annotations

import pytest

from foretell.graph.nodes import Graph
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.image_graphs import check_kernels
from tests.loops.kernels import kernel_of

LANES = 4


def softmax(*shape: int) -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("Softmax", sketch.data(*shape), axis=len(shape) - 1))


def test_loops_go_through_several_rows_each() -> None:
    (kernel,) = check_kernels(graph := softmax(300, 16), random_feeds(graph), lanes=LANES)
    assert "max: f32[8] in stack" in str(kernel)
    assert str(kernel).count("for i0.0.s < min(") == 4


@pytest.mark.parametrize("rows", [128, 131, 256, 263])
@pytest.mark.parametrize("length", [1, 15, 39])
def test_rows_that_are_left_over(rows: int, length: int) -> None:
    graph = softmax(rows, length)
    check_kernels(graph, random_feeds(graph), lanes=LANES)


def test_rows_of_two_axes() -> None:
    graph = softmax(40, 7, 9)
    check_kernels(graph, random_feeds(graph), lanes=LANES)


@pytest.mark.parametrize("shape", [(300, 164), (20, 16)], ids=["long rows", "few rows"])
def test_declines(shape: tuple[int, int]) -> None:
    assert "in stack" not in str(kernel_of(softmax(*shape), lanes=LANES))
