from __future__ import annotations

import pytest

from foretell.graph.rewrites.recognise_silu import recognise_silu
from foretell.ir.dtypes import F16, F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (Sym("n", 1),)], ids=str)
@pytest.mark.parametrize("swap", [True, False])
def test_either_order(shape: tuple[int, ...], dtype: DType, swap: bool) -> None:
    sketch = Sketch()
    x = sketch.data(*shape, dtype=dtype)
    factors = (x, sketch.op("Sigmoid", x))
    check_rewrite(recognise_silu, sketch.graph(sketch.op("Mul", *(factors[::-1] if swap else factors))), ops=["Silu"])


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.op("Exp", sketch.data(2))
    y = sketch.op("Mul", sketch.op("Sigmoid", x), x)
    assert str(check_rewrite(recognise_silu, sketch.graph(y), ops=["Exp", "Silu"])) == text(
        """
        graph test(%x: f32[2]) {
          %exp: f32[2] = Exp(%x)
          %silu: f32[2] = Silu(%exp)
          return y0=%silu
        }
        """
    )


def test_declines_another_value() -> None:
    sketch = Sketch()
    gated = sketch.op("Mul", sketch.data(3), sketch.op("Sigmoid", sketch.data(3, name="z")))
    check_declines(recognise_silu, sketch.graph(gated))


def test_declines_a_sigmoid_that_is_read_elsewhere() -> None:
    sketch = Sketch()
    x = sketch.data(3)
    gate = sketch.op("Sigmoid", x)
    check_declines(recognise_silu, sketch.graph(sketch.op("Mul", x, gate), gate))
