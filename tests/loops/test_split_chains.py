"""Functions of functions, cut into loops of one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from foretell.graph.nodes import Graph, Value
from foretell.ir.dtypes import F16, F32, DType
from foretell.ir.expr import Sym
from foretell.link_program import link_program
from foretell.loops.verify import verify
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.kernels import kernel_of
from tests.random_graphs import assert_agrees

Build: TypeAlias = Callable[[Sketch, Value], Value]


def gate(sketch: Sketch, x: Value) -> Value:
    return sketch.op("Tanh", sketch.op("Mul", x, sketch.op("Sigmoid", x)))


def mish(sketch: Sketch, x: Value) -> Value:
    """Three functions in a row, and the first argument again."""
    softplus = sketch.op("Log", sketch.op("Add", sketch.op("Exp", x), sketch.number(1.0, dtype=x.dtype)))
    return sketch.op("Mul", x, sketch.op("Tanh", softplus))


def graph_of(build: Build, count: int | Sym, dtype: DType = F32) -> Graph:
    sketch = Sketch()
    return sketch.graph(build(sketch, sketch.data(count, dtype=dtype)))


def test_a_function_of_a_function_is_cut() -> None:
    kernel = kernel_of(graph_of(gate, 100_000))
    verify(kernel)
    expected = """
        kernel tanh(%x: f32[100000]) -> %tanh: f32[100000] {
          for i0.2.b < 98 parallel:
            %tanh.part0: f32[1024] in stack
            for i0.2.j < min(-1024*i0.2.b + 100000, 1024) vector:
              %tanh.part0[i0.2.j] = mul(%x[1024*i0.2.b + i0.2.j], sigmoid(%x[1024*i0.2.b + i0.2.j]))
            for i0.2.j < min(-1024*i0.2.b + 100000, 1024) vector:
              %tanh[1024*i0.2.b + i0.2.j] = tanh(%tanh.part0[i0.2.j])
        }
    """
    assert str(kernel) == text(expected)


def test_every_function_gets_a_loop() -> None:
    printed = str(kernel_of(graph_of(mish, 100_000)))
    assert printed.count(" vector:") == 3 and printed.count("in stack") == 2


def test_declines_where_functions_stand_side_by_side() -> None:
    sketch = Sketch()
    x = sketch.data(100_000)
    kernel = kernel_of(sketch.graph(sketch.op("Mul", sketch.op("Tanh", x), sketch.op("Sigmoid", x))))
    assert "in stack" not in str(kernel)


def test_declines_for_little_work() -> None:
    assert "in stack" not in str(kernel_of(graph_of(gate, 100)))


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("count", [40_000, 1024 * 40, 1024 * 40 + 17])
@pytest.mark.parametrize("build", [gate, mish])
def test_compiled(build: Build, count: int, dtype: DType) -> None:
    graph = graph_of(build, count, dtype)
    feeds = random_feeds(graph)
    runs = [list(link_program(graph, resolve_target(), threads).run(feeds).values()) for threads in (1, 2)]
    assert_agrees(graph, feeds, runs[0])
    np.testing.assert_array_equal(runs[0][0], runs[1][0])


def test_compiled_for_an_unknown_size() -> None:
    graph = graph_of(gate, Sym("n", 1))
    model = link_program(graph, resolve_target())
    for count in (1, 1023, 1024, 3001):
        feeds = random_feeds(graph, {"n": count})
        assert_agrees(graph, feeds, list(model.run(feeds).values()))
