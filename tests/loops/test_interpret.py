"""Kernels, run by the plain interpreter, compute what the graph does: lowering is right, whatever LLVM does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from foretell.graph.nodes import Array, Graph
from foretell.ir.dtypes import F32
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Buffer, Const, Load
from foretell.loops.interpret import interpret
from foretell.loops.nodes import Block, For, Kernel, Store
from foretell.loops.verify import verify
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.kernels import kernels_of, symbols_of
from tests.random_graphs import assert_agrees, graphs


def check(graph: Graph, feeds: dict[str, Array], lanes: int = 8) -> None:
    kernels = kernels_of(graph, lanes)
    for kernel in kernels:
        verify(kernel)
    given_arrays = {value.name: array for value, array in graph.constants.items()} | feeds
    memory = interpret(kernels, given_arrays, symbols_of(graph, feeds))
    assert_agrees(graph, feeds, [memory[value.name] for value in graph.outputs])


@settings(max_examples=150, deadline=None)
@given(graphs(sizes=(0, 1, 2, 3, 5)))
def test_random_graphs(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check(*drawn)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(graphs(sizes=(0, 1, 2, 3, 5, 17), most_steps=7))
def test_many_random_graphs(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check(*drawn)


def test_shared_rows_and_blocks() -> None:
    """Sizes at which lowering shares loops among stages and cuts flat ones into blocks."""
    sketch = Sketch()
    x = sketch.data(Sym("n", 1), 9)
    graph = sketch.graph(sketch.op("LayerNorm", sketch.op("Softmax", x, axis=1), axis=1, epsilon=1e-5))
    check(graph, random_feeds(graph, {"n": 20}))


@pytest.mark.parametrize("group", [1, 2, 4])
def test_convolutions(group: int) -> None:
    sketch = Sketch()
    attrs = {"strides": (2, 1), "dilations": (1, 2), "before": (1, 0), "after": (0, 2), "group": group}
    y = sketch.op("Conv", sketch.data(2, 4, 5, 6), sketch.weights(4, 4 // group, 3, 2), sketch.weights(4), **attrs)
    graph = sketch.graph(sketch.op("Relu", y))
    check(graph, random_feeds(graph))


# --- what the interpreter does with a kernel that is wrong ---------------------------------------------------

X, Y = Buffer("x", F32, (4,)), Buffer("y", F32, (4,))
I = Sym("i", 0, 3)  # noqa: E741


def test_parallel_loops_may_run_in_any_order() -> None:
    total = Buffer("y", F32, (1,))
    body = For(I, 4, "parallel", Store(total, (0,), Load(X, (I,), F32)))
    memory = interpret([Kernel("last", (X,), (total,), body)], {"x": np.arange(4, dtype=np.float32)}, {})
    assert memory["y"][0] == 0, "the last iteration that runs is the first one written"


def test_an_index_outside_its_buffer_is_an_error() -> None:
    body = For(I, 4, "serial", Store(Y, (I,), Load(X, (I - 1,), F32)))
    with pytest.raises(AssertionError, match="outside 4"):
        interpret([Kernel("shift", (X,), (Y,), body)], {"x": np.zeros(4, np.float32)}, {})


def test_fresh_memory_holds_garbage() -> None:
    body = Block((Store(Y, (0,), Const(1.0, F32)),))
    memory = interpret([Kernel("one", (), (Y,), body)], {}, {})
    np.testing.assert_array_equal(memory["y"], np.array([1, np.nan, np.nan, np.nan], np.float32))
