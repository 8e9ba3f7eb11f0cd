"""Functions of sums run in loops; what they compute stays the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from foretell.graph.nodes import Graph, Value
from foretell.loops.loop_functions import loop_functions
from foretell.loops.nodes import Kernel
from foretell.loops.verify import verify
from foretell.schedule.steps import Hold, Schedule, Tile, Unroll, Vectorise, apply_schedule
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.kernels import kernels_as_given
from tests.schedule.nests import run_interpreted, run_native

ROWS = (Tile("i0.0", 2), Hold(("i0.0.i", "i1.0")), Unroll("i0.0.i"), Vectorise("i1.0"))
ONE_ROW = (Hold(("i1.0",)), Vectorise("i1.0"))
NOT_WRITTEN_OUT = (Tile("i0.0", 2), Hold(("i0.0.i", "i1.0")), Vectorise("i1.0"))


def product(function: Sequence[str], rows: int = 5, columns: int = 24) -> Graph:
    """Functions of x w, each of the one before, and the last times x w."""
    sketch = Sketch()
    sums: Value = sketch.op("MatMul", sketch.data(rows, 3), sketch.data(3, columns, name="y"))
    value = sums
    for op in function:
        value = sketch.op(op, value)
    return sketch.graph(sketch.op("Mul", sums, value))


def scheduled(graph: Graph, schedule: Schedule) -> Kernel:
    found: list[Kernel] = []

    def note(kernel: Kernel) -> Kernel | None:
        found.append(kernel)
        return None

    kernels_as_given(graph, 16, note)
    (nest,) = found
    return apply_schedule(nest, schedule)


def test_rows_of_sums_wait_on_the_stack() -> None:
    kernel = loop_functions(scheduled(product(["Sigmoid"], rows=4, columns=16), ROWS))
    verify(kernel)
    expected = """
        kernel mul(%x: f32[4, 3], %y: f32[3, 16]) -> %mul: f32[4, 16] {
          for i0.0.o < 2 serial:
            %matmul: f32[2, 16] in stack
            %matmul.acc: f32[2, 16] in register
            for i0.0.i < 2 unroll:
              for i1.0 < 16 vector:
                %matmul.acc[i0.0.i, i1.0] = 0:f32
            for k.0 < 3 serial:
              for i0.0.i < 2 unroll:
                for i1.0 < 16 vector:
                  %matmul.acc[i0.0.i, i1.0] sum= mul(%x[i0.0.i + 2*i0.0.o, k.0], %y[k.0, i1.0])
            for i0.0.i < 2 unroll:
              for i1.0 < 16 vector:
                %matmul[i0.0.i, i1.0] = %matmul.acc[i0.0.i, i1.0]
            for i0.0.i < 2 serial:
              for i1.0 < 16 vector:
                %mul[i0.0.i + 2*i0.0.o, i1.0] = mul(%matmul[i0.0.i, i1.0], sigmoid(%matmul[i0.0.i, i1.0]))
        }
    """
    assert str(kernel) == text(expected)


@pytest.mark.parametrize("columns", [2, 3, 16, 24, 37])
@pytest.mark.parametrize("functions", [["Sigmoid"], ["Relu", "Tanh"], ["Exp", "Erf"]])
def test_means_the_same(functions: list[str], columns: int) -> None:
    """Five rows in tiles of two: the tail has one."""
    graph = product(functions, columns=columns)
    before = scheduled(graph, ROWS)
    after = loop_functions(before)
    verify(after)
    feeds = random_feeds(graph)
    wanted = run_interpreted(before, feeds)
    assert np.array_equal(run_interpreted(after, feeds), wanted)
    native = run_native(after, feeds, np.zeros_like(wanted))
    assert np.allclose(native, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("functions", "schedule"),
    [(["Relu"], ROWS), (["Sigmoid"], ONE_ROW), (["Sigmoid"], NOT_WRITTEN_OUT), (["Sigmoid"], ())],
    ids=["no functions", "one row", "a loop already", "no tile"],
)
def test_declines(functions: list[str], schedule: Schedule) -> None:
    before = scheduled(product(functions), schedule)
    assert loop_functions(before) is before
