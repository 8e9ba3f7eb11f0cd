"""Which dimensions operators take for equal."""

from __future__ import annotations

from foretell.graph.equal_dims import equal_dims
from foretell.graph.nodes import Value
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch

K, M, N = Sym("k"), Sym("m"), Sym("n")


def pairs(sketch: Sketch, output: Value) -> list[tuple[Dim, Dim]]:
    return equal_dims(sketch.graph(output).nodes[-1])


def test_broadcasting() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("Add", sketch.data(N, 4), sketch.data(M, 1, name="y"))) == [(N, M)]


def test_a_number_meets_a_symbol() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("Add", sketch.data(N), sketch.data(5, name="y"))) == [(5, N)]


def test_matmul() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("MatMul", sketch.data(2, N), sketch.data(M, K, name="y"))) == [(N, M)]


def test_reshape() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("Reshape", sketch.data(N), shape=(4, 8))) == [(32, N)]


def test_concat() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("Concat", sketch.data(N, 2), sketch.data(M, K, name="y"), axis=1)) == [(M, N)]


def test_declines_what_symbols_say_already() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("Add", sketch.data(N, 4), sketch.data(1, 4, name="y"))) == []


def test_declines_operators_that_read_a_part() -> None:
    sketch = Sketch()
    assert pairs(sketch, sketch.op("Slice", sketch.data(N), starts=(0,), steps=(1,), shape=(M,))) == []
