from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Value
from foretell.graph.rewrites.recognise_sigmoid import recognise_sigmoid
from foretell.ir.dtypes import F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text


def denominator(g: Sketch, x: Value, one: float = 1.0) -> Value:
    return g.op("Add", g.number(one, dtype=x.dtype), g.op("Exp", g.op("Neg", x)))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (Sym("n", 1),)], ids=str)
def test_forms(shape: tuple[int, ...], dtype: DType) -> None:
    sketch = Sketch()
    x, y = sketch.data(*shape, dtype=dtype), sketch.data(*shape, dtype=dtype, name="y")
    check_rewrite(recognise_sigmoid, sketch.graph(sketch.op("Reciprocal", denominator(sketch, x))), ops=["Sigmoid"])
    inverse = sketch.op("Div", sketch.number(1.0, dtype=dtype), denominator(sketch, x))
    check_rewrite(recognise_sigmoid, sketch.graph(inverse), ops=["Sigmoid"])
    quotient = sketch.op("Div", y, denominator(sketch, x))
    check_rewrite(recognise_sigmoid, sketch.graph(quotient), ops=["Sigmoid", "Mul"])


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.data(2)
    minus = sketch.op("Exp", sketch.op("Mul", x, sketch.number(-1.0)))
    y = sketch.op("Div", sketch.number(1.0), sketch.op("Add", minus, sketch.number(1.0)))
    assert str(check_rewrite(recognise_sigmoid, sketch.graph(y), ops=["Sigmoid"])) == text(
        """
        graph test(%x: f32[2]) {
          %sigmoid: f32[2] = Sigmoid(%x)
          return y0=%sigmoid
        }
        """
    )


def test_where_exp_overflows_both_are_zero() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Reciprocal", denominator(sketch, sketch.data(2))))
    feeds = {"x": np.array([-200.0, 200.0], np.float32)}
    for version in (graph, recognise_sigmoid(graph)):
        assert evaluate(version, feeds)["y0"].tolist() == [0.0, 1.0]


def test_declines() -> None:
    for make in (
        lambda g, x: g.op("Reciprocal", denominator(g, x, one=2.0)),
        lambda g, x: g.op("Div", g.number(2.0), denominator(g, x)),
        lambda g, x: g.op("Reciprocal", g.op("Add", g.number(1.0), g.op("Exp", x))),
    ):
        sketch = Sketch()
        check_declines(recognise_sigmoid, sketch.graph(make(sketch, sketch.data(3))))


def test_declines_when_the_power_is_read_elsewhere() -> None:
    sketch = Sketch()
    shared = denominator(sketch, sketch.data(3))
    check_declines(recognise_sigmoid, sketch.graph(sketch.op("Reciprocal", shared), shared))
