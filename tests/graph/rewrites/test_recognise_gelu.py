from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import numpy as np
import pytest

from foretell.graph.nodes import Value
from foretell.graph.rewrites.recognise_gelu import recognise_gelu
from foretell.ir.dtypes import F16, F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text

Make = Callable[[Sketch, Value], Value]


def gate(g: Sketch, x: Value, divide: bool = True, constant: float = sqrt(2)) -> Value:
    scaled = g.op("Div", x, g.number(constant, dtype=x.dtype)) if divide else scale(g, x, 1 / constant)
    return g.op("Add", g.op("Erf", scaled), g.number(1.0, dtype=x.dtype))


def scale(g: Sketch, x: Value, factor: float) -> Value:
    return g.op("Mul", g.number(factor, (1,), x.dtype), x)


def cube(g: Sketch, x: Value) -> Value:
    return g.op("Mul", g.op("Mul", x, x), x)


def tanh_gate(g: Sketch, x: Value, cubed: Value, factor: float = 0.044715) -> Value:
    inner = g.op("Add", x, scale(g, cubed, factor))
    return g.op("Add", g.number(1.0, dtype=x.dtype), g.op("Tanh", scale(g, inner, sqrt(2 / pi))))


def factored_gate(g: Sketch, x: Value) -> Value:
    """1 + tanh(x * sqrt(2/pi) * (1 + 0.044715 x x)), as some exporters write it."""
    square = g.op("Add", scale(g, g.op("Mul", x, x), 0.044715), g.number(1.0, dtype=x.dtype))
    return g.op("Add", g.op("Tanh", g.op("Mul", scale(g, x, sqrt(2 / pi)), square)), g.number(1.0, dtype=x.dtype))


ERF: dict[str, Make] = {
    "x * 0.5 * (1 + erf)": lambda g, x: g.op("Mul", scale(g, x, 0.5), gate(g, x)),
    "(1 + erf) * 0.5 * x": lambda g, x: g.op("Mul", scale(g, gate(g, x, divide=False), 0.5), x),
    "0.5 * (x * (1 + erf))": lambda g, x: scale(g, g.op("Mul", x, gate(g, x)), 0.5),
    "x * (1 + erf) / 2": lambda g, x: g.op("Div", g.op("Mul", x, gate(g, x)), g.number(2.0, dtype=x.dtype)),
    "x / 2 * (1 + erf)": lambda g, x: g.op("Mul", gate(g, x), g.op("Div", x, g.number(2.0, dtype=x.dtype))),
}
TANH: dict[str, Make] = {
    "pow": lambda g, x: g.op("Mul", scale(g, x, 0.5), tanh_gate(g, x, g.op("Pow", x, g.number(3.0, dtype=x.dtype)))),
    "products": lambda g, x: scale(g, g.op("Mul", tanh_gate(g, x, cube(g, x)), x), 0.5),
    "factored": lambda g, x: g.op("Mul", x, scale(g, factored_gate(g, x), 0.5)),
}


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", [(1,), (3, 7), (Sym("n", 1), 4)], ids=str)
@pytest.mark.parametrize("form", [*ERF, *TANH])
def test_forms(form: str, shape: tuple[int, ...], dtype: DType) -> None:
    sketch = Sketch()
    y = (ERF | TANH)[form](sketch, sketch.data(*shape, dtype=dtype))
    after = check_rewrite(recognise_gelu, sketch.graph(y), ops=["Gelu"])
    assert after.nodes[0].attrs["approximate"] == ("none" if form in ERF else "tanh")


def test_golden() -> None:
    sketch = Sketch()
    sketch.location = "encoder/gelu"
    y = ERF["x * 0.5 * (1 + erf)"](sketch, sketch.data(2, 3))
    after = recognise_gelu(sketch.graph(y))
    assert str(after) == text(
        """
        graph test(%x: f32[2, 3]) {
          %gelu: f32[2, 3] = Gelu(%x) {approximate=none}
          return y0=%gelu
        }
        """
    )
    assert after.nodes[0].location == "encoder/gelu"


def test_x_may_be_a_product_itself() -> None:
    sketch = Sketch()
    x = sketch.op("Mul", sketch.data(3), sketch.data(3, name="z"))
    check_rewrite(recognise_gelu, sketch.graph(ERF["x * 0.5 * (1 + erf)"](sketch, x)), ops=["Mul", "Gelu"])


DECLINED: dict[str, Make] = {
    "another constant": lambda g, x: g.op("Mul", scale(g, x, 0.5), gate(g, x, constant=1.4142)),
    "another factor": lambda g, x: g.op("Mul", scale(g, x, 0.51), gate(g, x)),
    "another cubic term": lambda g, x: g.op("Mul", scale(g, x, 0.5), tanh_gate(g, x, cube(g, x), 0.0447)),
    "erf of something else": lambda g, x: g.op("Mul", scale(g, x, 0.5), gate(g, g.data(3, name="z"))),
    "one more factor": lambda g, x: g.op("Mul", scale(g, g.op("Mul", x, g.data(3, name="z")), 0.5), gate(g, x)),
}


@pytest.mark.parametrize("case", DECLINED)
def test_declines(case: str) -> None:
    sketch = Sketch()
    check_declines(recognise_gelu, sketch.graph(DECLINED[case](sketch, sketch.data(3))))


def test_declines_constants_that_add_an_axis() -> None:
    sketch = Sketch()
    check_declines(recognise_gelu, sketch.graph(ERF["x * 0.5 * (1 + erf)"](sketch, sketch.data())))


def test_declines_when_the_gate_is_read_elsewhere() -> None:
    sketch = Sketch()
    x = sketch.data(3)
    shared = gate(sketch, x)
    check_declines(recognise_gelu, sketch.graph(sketch.op("Mul", scale(sketch, x, 0.5), shared), shared))


def test_constants_rounded_to_half_precision_are_close_enough_for_it() -> None:
    sketch = Sketch()
    x = sketch.data(3, dtype=F16)
    rounded = float(np.float16(sqrt(2)))
    y = sketch.op("Mul", scale(sketch, x, 0.5), gate(sketch, x, constant=rounded))
    check_rewrite(recognise_gelu, sketch.graph(y), ops=["Gelu"])
    wide = Sketch()
    z = wide.data(3)
    check_declines(recognise_gelu, wide.graph(wide.op("Mul", scale(wide, z, 0.5), gate(wide, z, constant=rounded))))
