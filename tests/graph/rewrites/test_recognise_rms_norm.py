from __future__ import annotations

import pytest

from foretell.graph.rewrites.recognise_rms_norm import recognise_rms_norm
from foretell.ir.dtypes import F16, F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text
from tests.graph.rewrites.test_recognise_layer_norm import CASES, SPELLINGS, quotient


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_normalisation(shape: tuple[int, ...], axes: tuple[int, ...], spelling: str, dtype: DType) -> None:
    sketch = Sketch()
    y = quotient(sketch, sketch.data(*shape, dtype=dtype), axes, spelling)
    check_rewrite(recognise_rms_norm, sketch.graph(y), ops=["RMSNorm"])


def test_golden_with_scale() -> None:
    sketch = Sketch()
    x = sketch.data(Sym("n", 1), 3)
    y = sketch.op("Mul", sketch.number(2.0, (3,)), quotient(sketch, x, (1,)))
    assert str(check_rewrite(recognise_rms_norm, sketch.graph(y), ops=["RMSNorm"])) == text(
        """
        graph test(%x: f32[n, 3]) {
          %c: f32[3] = constant [2.0, 2.0, 2.0]
          %rmsnorm_1: f32[n, 3] = RMSNorm(%x, %c) {axis=1, epsilon=0.0010000000474974513}
          return y0=%rmsnorm_1
        }
        """
    )


def test_declines_a_scale_that_is_data() -> None:
    sketch = Sketch()
    plain = sketch.op("RMSNorm", sketch.data(2, 3), axis=1, epsilon=0.1)
    check_declines(recognise_rms_norm, sketch.graph(sketch.op("Mul", plain, sketch.data(3, name="s"))))


def test_declines_a_sum_of_squares() -> None:
    sketch = Sketch()
    x = sketch.data(2, 3)
    total = sketch.op("ReduceSum", sketch.op("Mul", x, x), axes=(1,), keepdims=True)
    root = sketch.op("Sqrt", sketch.op("Add", total, sketch.number(1e-3)))
    check_declines(recognise_rms_norm, sketch.graph(sketch.op("Div", x, root)))
