"""Nests of a whole program: equal ones are scheduled once, each with its own operands."""

from __future__ import annotations

import numpy as np

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.link_program import is_native, link_program
from foretell.loops.lower_graph import lower_graph
from foretell.search.schedule_nests import NestScheduler
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.tolerances import assert_close

TARGET = resolve_target("native")


def three_products() -> Graph:
    """Two of one shape with weights of their own, then one of another shape, whose second operand is no constant."""
    sketch = Sketch()
    x = sketch.data(24, 40)
    y = sketch.op("Tanh", sketch.op("MatMul", x, sketch.weights(40, 40, seed=1)))
    z = sketch.op("Tanh", sketch.op("MatMul", y, sketch.weights(40, 40, seed=2)))
    return sketch.graph(sketch.op("MatMul", z, sketch.data(40, 24, name="w")))


def test_equal_nests_are_scheduled_once() -> None:
    graph = three_products()
    schedule = NestScheduler(TARGET.spec, frozenset(value.name for value in graph.constants))
    lower_graph(graph, is_native, TARGET.spec.vector_bytes // 4, schedule)
    assert len(schedule.nests) == 2
    assert len(schedule.packed) == 2, "the weights of both, not what is no constant"
    assert {source.name for source, _ in schedule.packed.values()} == {value.name for value in graph.constants}


def test_results() -> None:
    graph = three_products()
    feeds = random_feeds(graph)
    (got,), (expected,) = link_program(graph, TARGET, 2).run(feeds).values(), evaluate(graph, feeds).values()
    assert_close(np.asarray(got), expected, F32, terms=120, scale=40.0)
