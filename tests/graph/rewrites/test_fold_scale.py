from __future__ import annotations

import pytest

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.fold_scale import fold_scale
from foretell.ir.dtypes import BF16, F16, F32, F64, DType
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text
from tests.graph.rewrites.test_fold_batch_norm import conv
from tests.graph.rewrites.test_fuse_bias import SHAPES


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_convolution(op: str, bias: bool, shape: tuple[int, ...], dtype: DType) -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 7, dtype=dtype), 4, bias=bias)
    check_rewrite(fold_scale, sketch.graph(sketch.op(op, y, sketch.weights(*shape, dtype=dtype))), ops=["Conv"])


@pytest.mark.parametrize("batch", [(), (1,), (3, 2), (Sym("n", 1),)], ids=str)
def test_matrix_product(batch: tuple[Dim, ...]) -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.data(*batch, 3, 4), sketch.weights(4, 5))
    check_rewrite(fold_scale, sketch.graph(sketch.op("Mul", sketch.weights(5, seed=2), y)), ops=["MatMul"])


def test_golden() -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.data(Sym("n", 1), 3), sketch.number(1.0, (3, 2)), sketch.number(4.0, (2,)))
    assert str(
        check_rewrite(fold_scale, sketch.graph(sketch.op("Div", y, sketch.number(8.0))), ops=["MatMul"])
    ) == text(
        """
        graph test(%x: f32[n, 3]) {
          %c_3: f32[3, 2] = constant [[0.125, 0.125], [0.125, 0.125], [0.125, 0.125]]
          %c_4: f32[2] = constant [0.5, 0.5]
          %matmul_1: f32[n, 2] = MatMul(%x, %c_3, %c_4)
          return y0=%matmul_1
        }
        """
    )


def declined(case: str) -> Graph:
    sketch = Sketch()
    x = sketch.data(3, 4)
    match case:
        case "weights that are data":
            y = sketch.op("MatMul", x, sketch.data(4, 5, name="w"))
        case "a bias that is data":
            y = sketch.op("MatMul", x, sketch.weights(4, 5), sketch.data(5, name="b"))
        case "infinite weights":
            y = sketch.op("MatMul", x, sketch.number(3e38, (4, 5)))
        case _:
            y = sketch.op("MatMul", x, sketch.weights(4, 5000))
    scaled = sketch.op("Mul", y, sketch.number(10.0))
    if case == "shared weights":
        return sketch.graph(scaled, sketch.op("Neg", next(value for value in sketch.constants)))
    return sketch.graph(scaled, y) if case == "another reader" else sketch.graph(scaled)


@pytest.mark.parametrize(
    "case", ["weights that are data", "a bias that is data", "infinite weights", "shared weights", "another reader"]
)
def test_declines(case: str) -> None:
    check_declines(fold_scale, declined(case))
