"""Footprints, traffic and flops, exact where a closed form is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Const, Load
from foretell.loops.analysis import Level, bytes_moved, dependences, elements_touched, flops, footprint, levels
from foretell.loops.nodes import Block, For, Kernel, Statement, Store
from tests.graph.build_graphs import Sketch
from tests.loops.kernels import kernel_of, kernels_as_given

M, N = Sym("m", 1), Sym("n", 1)


def buffers(kernel: Kernel) -> dict[str, Buffer]:
    return {buffer.name: buffer for buffer in (*kernel.reads, *kernel.writes)}


def footprints(kernel: Kernel) -> dict[str, Dim]:
    return {name: footprint(kernel, buffer) for name, buffer in buffers(kernel).items()}


def matmul(rows: Dim, inner: Dim, columns: Dim) -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("MatMul", sketch.data(rows, inner, name="a"), sketch.data(inner, columns, name="b")))


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (N, 32), (N, M)])
def test_matmul(rows: Dim, columns: Dim) -> None:
    kernel = kernel_of(matmul(rows, 24, columns))
    assert flops(kernel) == 2 * rows * 24 * columns
    assert footprints(kernel) == {"a": 96 * rows, "b": 96 * columns, "matmul": 4 * rows * columns}
    assert bytes_moved(kernel) == 96 * rows + 96 * columns + 4 * rows * columns


def by_name(level: Level) -> dict[str, Dim]:
    return {buffer.name: count for buffer, count in level.elements.items()}


def test_levels_of_a_matmul() -> None:
    outer, middle, inner = levels(kernel_of(matmul(N, 24, 32)))
    assert (outer.loop.extent, middle.loop.extent, inner.loop.extent) == (N, 32, 24)
    assert (outer.depth, middle.depth, inner.depth) == (0, 1, 2)
    assert by_name(outer) == {"a": 24, "b": 24 * 32, "matmul": 32}
    assert by_name(middle) == {"a": 24, "b": 24, "matmul": 1}
    assert by_name(inner) == {"a": 1, "b": 1, "matmul.acc": 1}
    assert [buffer.name for buffer in outer.reads] == ["a", "b"]
    assert [buffer.name for buffer in outer.writes] == ["matmul"]


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 1), (4, 1)])
def test_convolution(stride: int, dilation: int) -> None:
    """Rows and columns that windows skip are not counted, those that they share only once."""
    sketch = Sketch()
    x, w = sketch.data(2, 3, 17, 17), sketch.data(4, 3, 3, 3, name="w")
    attrs = {"strides": (stride, stride), "dilations": (dilation, dilation), "before": (0, 0), "after": (0, 0)}
    (kernel,) = kernels_as_given(sketch.graph(sketch.op("Conv", x, w, group=1, **attrs)))
    out = (17 - 2 * dilation - 1) // stride + 1
    seen = {s * stride + k * dilation for s in range(out) for k in range(3)}
    assert flops(kernel) == 2 * 2 * 4 * out * out * 27
    assert footprints(kernel) == {"x": 4 * 2 * 3 * len(seen) ** 2, "w": 4 * 108, "conv": 4 * 2 * 4 * out * out}


@pytest.mark.parametrize("rows", [N, 100])
def test_elementwise(rows: Dim) -> None:
    """Joined axes, cut into blocks: n * 400 elements once each."""
    sketch = Sketch()
    kernel = kernel_of(sketch.graph(sketch.op("Exp", sketch.op("Neg", sketch.data(rows, 400)))))
    assert flops(kernel) == 800 * rows
    assert bytes_moved(kernel) == 3200 * rows
    assert dependences(kernel) == []


def test_softmax() -> None:
    """max, subtract, exp, sum, and a multiplication by the inverse of the sum."""
    sketch = Sketch()
    kernel = kernel_of(sketch.graph(sketch.op("Softmax", sketch.data(20, 37), axis=1)))
    assert flops(kernel) == 20 * (5 * 37 + 1)
    assert footprints(kernel) == {"x": 2960, "softmax": 2960}, "three readings of a row are one footprint"
    assert bytes_moved(kernel) == 2 * 2960
    assert {(found.kind, found.buffer.name) for found in dependences(kernel)} == {
        ("reduction", "softmax.0.max.acc"),
        ("reduction", "softmax.2.sum.acc"),
    }
    assert by_name(levels(kernel)[0]) == {"x": 37, "softmax": 37}


def test_reduction_over_the_first_axis() -> None:
    sketch = Sketch()
    kernel = kernel_of(sketch.graph(sketch.op("ReduceSum", sketch.data(4, 5, 32), axes=(0,), keepdims=False)))
    assert flops(kernel) == 640 and footprints(kernel) == {"x": 2560, "reducesum": 640}


# --- accesses written by hand --------------------------------------------------------------------------------

I, J = Sym("i", 0), Sym("j", 0)  # noqa: E741
LINE = Buffer("line", F32, (100,))
SQUARE = Buffer("square", F32, (10, 10))


def nest(body: Statement, first: int = 4, second: int = 5) -> For:
    return For(I, first, "serial", For(J, second, "serial", body))


def fill(buffer: Buffer, *indices: Dim) -> Store:
    return Store(buffer, indices, Const(0.0, F32))


@settings(max_examples=80, deadline=None)
@given(*(st.integers(1, 6) for _ in range(4)))
def test_two_loops_on_one_axis(step: int, other: int, first: int, second: int) -> None:
    """Runs that meet, runs apart, runs within each other: never fewer than there are, exact where runs meet or part."""
    found = elements_touched(nest(fill(LINE, step * I + other * J), first, second), LINE)
    values = np.unique(np.add.outer(step * np.arange(first), other * np.arange(second)))
    assert isinstance(found, int) and found >= values.size
    if min(step, other) == 1 or step == other:
        assert found == values.size


def test_neighbouring_accesses_are_joined() -> None:
    stencil = [Load(LINE, (I + shift,), F32) for shift in (1, 0, 2)]
    body = Block(tuple(Store(SQUARE, (I, 0), load) for load in stencil))
    assert elements_touched(For(I, 8, "serial", body), LINE) == 10


def test_accesses_far_apart_are_added() -> None:
    body = Block((fill(LINE, I), fill(LINE, I + 50)))
    assert elements_touched(For(I, 8, "serial", body), LINE) == 16


def test_a_diagonal_is_not_a_square() -> None:
    assert elements_touched(For(I, 10, "serial", fill(SQUARE, I, I)), SQUARE) == 10


def test_dependences_by_kind() -> None:
    def kinds(body: Statement) -> list[tuple[str, str]]:
        return [(found.loop.sym.name, found.kind) for found in dependences(nest(body))]

    assert kinds(fill(SQUARE, I, J)) == []
    assert kinds(fill(LINE, 5 * I + J)) == []
    assert kinds(fill(LINE, 4 * I + J)) == [("i", "output")]
    assert kinds(fill(LINE, J)) == [("i", "output")]
    assert kinds(Store(LINE, (5 * I + J + 1,), Load(LINE, (5 * I + J,), F32))) == [("i", "flow"), ("j", "flow")]
