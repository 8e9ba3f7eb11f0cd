from __future__ import annotations

from collections.abc import Callable

import pytest

from foretell.graph.nodes import Value
from foretell.graph.rewrites.recognise_hard_swish import recognise_hard_swish
from foretell.ir.dtypes import F16, F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text

Make = Callable[[Sketch, Value], Value]


def number(g: Sketch, x: Value, value: float) -> Value:
    return g.number(value, dtype=x.dtype)


def clip(g: Sketch, x: Value, low: float, high: float, relu: bool = False) -> Value:
    floor = g.op("Relu", x) if relu else g.op("Max", x, number(g, x, low))
    return g.op("Min", floor, number(g, x, high))


def plus_three(g: Sketch, x: Value) -> Value:
    return g.op("Add", x, number(g, x, 3.0))


def line(g: Sketch, x: Value) -> Value:
    return g.op("Add", g.op("Mul", x, number(g, x, 1 / 6)), number(g, x, 0.5))


def sixth(g: Sketch, x: Value) -> Value:
    return g.op("Div", x, number(g, x, 6.0))


FORMS: dict[str, Make] = {
    "x * clip(x + 3, 0, 6) / 6": lambda g, x: sixth(g, g.op("Mul", x, clip(g, plus_three(g, x), 0.0, 6.0))),
    "x * (relu6(x + 3) / 6)": lambda g, x: g.op("Mul", x, sixth(g, clip(g, plus_three(g, x), 0, 6, relu=True))),
    "x / 6 * clip(x + 3, 0, 6)": lambda g, x: g.op("Mul", sixth(g, x), clip(g, plus_three(g, x), 0.0, 6.0)),
    "x * clip(x / 6 + 1/2, 0, 1)": lambda g, x: g.op("Mul", x, clip(g, line(g, x), 0.0, 1.0)),
    "max(0, min(1, x / 6 + 1/2)) * x": lambda g, x: g.op(
        "Mul", g.op("Max", number(g, x, 0.0), g.op("Min", number(g, x, 1.0), line(g, x))), x
    ),
}


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (Sym("n", 1),)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, shape: tuple[int, ...], dtype: DType) -> None:
    sketch = Sketch()
    y = FORMS[form](sketch, sketch.data(*shape, dtype=dtype))
    check_rewrite(recognise_hard_swish, sketch.graph(y), ops=["HardSwish"])


def test_golden() -> None:
    sketch = Sketch()
    y = FORMS["x * clip(x + 3, 0, 6) / 6"](sketch, sketch.data(2))
    assert str(recognise_hard_swish(sketch.graph(y))) == text(
        """
        graph test(%x: f32[2]) {
          %hardswish: f32[2] = HardSwish(%x)
          return y0=%hardswish
        }
        """
    )


DECLINED: dict[str, Make] = {
    "clip to 5": lambda g, x: sixth(g, g.op("Mul", x, clip(g, plus_three(g, x), 0.0, 5.0))),
    "clip from -1": lambda g, x: sixth(g, g.op("Mul", x, clip(g, plus_three(g, x), -1.0, 6.0))),
    "not divided": lambda g, x: g.op("Mul", x, clip(g, plus_three(g, x), 0.0, 6.0)),
    "divided by -6": lambda g, x: g.op("Neg", FORMS["x * clip(x + 3, 0, 6) / 6"](g, x)),
    "another gate": lambda g, x: sixth(g, g.op("Mul", x, clip(g, plus_three(g, g.data(3, name="z")), 0.0, 6.0))),
    "no upper bound": lambda g, x: sixth(g, g.op("Mul", x, g.op("Relu", plus_three(g, x)))),
}


@pytest.mark.parametrize("case", DECLINED)
def test_declines(case: str) -> None:
    sketch = Sketch()
    graph = sketch.graph(DECLINED[case](sketch, sketch.data(3)))
    if case == "divided by -6":
        check_rewrite(recognise_hard_swish, graph, ops=["HardSwish", "Neg"])
    else:
        check_declines(recognise_hard_swish, graph)
