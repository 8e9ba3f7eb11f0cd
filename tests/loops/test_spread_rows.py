"""A line behind each row of what sums read, if rows would share few places of the first cache."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.use_strassen import use_strassen
from foretell.link_program import link_program
from foretell.loops.lower_graph import buffer_of
from foretell.loops.spread_rows import spread_rows
from foretell.loops.stages import flatten, inline
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds

TARGET = resolve_target("native")


def softmax_and_product(length: int) -> Graph:
    sketch = Sketch()
    rows = sketch.op("Softmax", sketch.data(20, length), axis=1)
    return sketch.graph(sketch.op("MatMul", rows, sketch.weights(length, 24)))


def shapes(graph: Graph) -> set[tuple[object, ...]]:
    kept = frozenset(map(buffer_of, graph.outputs))
    return {stage.buffer.shape for stage in spread_rows(inline(flatten(graph.nodes, buffer_of), kept), kept)}


@pytest.mark.parametrize(("length", "stored"), [(512, 528), (1024, 1040), (256, 256), (500, 500)])
def test_rows_are_parted_where_they_would_meet(length: int, stored: int) -> None:
    assert (20, stored) in shapes(softmax_and_product(length))


def test_not_what_is_visible_outside_or_no_operand_of_a_sum() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Softmax", sketch.data(20, 1024), axis=1))
    assert all(shape[-1] != 1040 for shape in shapes(graph))


def test_results_are_the_same() -> None:
    graph = softmax_and_product(1024)
    x = random_feeds(graph)["x"]
    (weights,) = graph.constants.values()
    scores = np.exp(x - x.max(axis=1, keepdims=True))
    (found,) = link_program(graph, TARGET).run({"x": x}).values()
    np.testing.assert_allclose(found, scores / scores.sum(axis=1, keepdims=True) @ weights, rtol=1e-4, atol=1e-5)


def slabs(count: int, rows: int, length: int) -> Graph:
    """Products by quarters, twice halved: sums of quarters are written side by side, and products read."""
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.data(rows, length), sketch.weights(length, 64)))
    return use_strassen(graph, lambda halves: count)


@pytest.mark.parametrize(
    ("count", "rows", "length", "stored"),
    [(1, 128, 512, (7, 65, 256)), (2, 128, 512, (49, 33, 144)), (1, 126, 16, (7, 63, 8)), (2, 52, 128, (49, 13, 32))],
)
def test_slabs_are_parted_where_they_would_meet(count: int, rows: int, length: int, stored: tuple[int, ...]) -> None:
    """63 x 32 bytes, and 13 x 128 bytes, are no multiples of much; rows that are short stay as they are."""
    assert stored in shapes(slabs(count, rows, length))
