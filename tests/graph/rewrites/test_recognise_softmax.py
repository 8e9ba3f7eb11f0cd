from __future__ import annotations

import pytest

from foretell.graph.nodes import Value
from foretell.graph.rewrites.recognise_softmax import recognise_softmax
from foretell.ir.dtypes import F16, F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text

SHAPES = [(1, 1), (3, 7), (Sym("n", 1), 5)]


def below(g: Sketch, x: Value, axes: tuple[int, ...]) -> Value:
    return g.op("Sub", x, g.op("ReduceMax", x, axes=axes, keepdims=True))


def softmax(g: Sketch, exponent: Value, axes: tuple[int, ...]) -> Value:
    e = g.op("Exp", exponent)
    return g.op("Div", e, g.op("ReduceSum", e, axes=axes, keepdims=True))


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(shape: tuple[int, ...], axis: int, dtype: DType) -> None:
    sketch = Sketch()
    y = softmax(sketch, below(sketch, sketch.data(*shape, dtype=dtype), (axis,)), (axis,))
    check_rewrite(recognise_softmax, sketch.graph(y), ops=["Softmax"])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_log_softmax(shape: tuple[int, ...]) -> None:
    sketch = Sketch()
    d = below(sketch, sketch.data(*shape), (1,))
    total = sketch.op("ReduceSum", sketch.op("Exp", d), axes=(1,), keepdims=True)
    check_rewrite(recognise_softmax, sketch.graph(sketch.op("Sub", d, sketch.op("Log", total))), ops=["LogSoftmax"])


def test_golden_with_an_inverse() -> None:
    sketch = Sketch()
    e = sketch.op("Exp", below(sketch, sketch.data(2, 3), (1,)))
    total = sketch.op("ReduceSum", e, axes=(1,), keepdims=True)
    y = sketch.op("Mul", sketch.op("Reciprocal", total), e)
    assert str(check_rewrite(recognise_softmax, sketch.graph(y), ops=["Softmax"])) == text(
        """
        graph test(%x: f32[2, 3]) {
          %softmax: f32[2, 3] = Softmax(%x) {axis=1}
          return y0=%softmax
        }
        """
    )


def test_declines_without_the_maximum_as_that_overflows_elsewhere() -> None:
    sketch = Sketch()
    check_declines(recognise_softmax, sketch.graph(softmax(sketch, sketch.data(2, 3), (1,))))


def test_declines_two_axes_or_different_ones() -> None:
    for first, second in (((0, 1), (0, 1)), ((0,), (1,))):
        sketch = Sketch()
        y = softmax(sketch, below(sketch, sketch.data(2, 3), first), second)
        check_declines(recognise_softmax, sketch.graph(y))


def test_declines_when_the_powers_are_read_elsewhere() -> None:
    sketch = Sketch()
    y = softmax(sketch, below(sketch, sketch.data(2, 3), (1,)), (1,))
    e = next(value for value in sketch.producers if value.name == "exp")
    check_declines(recognise_softmax, sketch.graph(y, e))
