from __future__ import annotations

import pytest

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.fuse_bias import fuse_bias
from foretell.ir.dtypes import F16, F32, F64, I32, DType
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text
from tests.graph.rewrites.test_fold_batch_norm import conv

SHAPES = [(4, 1, 1), (1, 4, 1, 1), (1,), ()]


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_convolution(op: str, bias: bool, shape: tuple[int, ...], dtype: DType) -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 7, dtype=dtype), 4, bias=bias)
    check_rewrite(fuse_bias, sketch.graph(sketch.op(op, y, sketch.weights(*shape, dtype=dtype))), ops=["Conv"])


@pytest.mark.parametrize("batch", [(), (1,), (3, 2), (Sym("n", 1),)], ids=str)
def test_matrix_product(batch: tuple[Dim, ...]) -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.data(*batch, 3, 4), sketch.weights(4, 5))
    check_rewrite(fuse_bias, sketch.graph(sketch.op("Add", sketch.weights(5), y)), ops=["MatMul"])


def test_golden() -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.data(Sym("n", 1), 3), sketch.number(1.0, (3, 2)))
    y = sketch.op("Add", sketch.op("Add", y, sketch.number(2.0, (2,))), sketch.number(0.5))
    assert str(check_rewrite(fuse_bias, sketch.graph(y), ops=["MatMul"])) == text(
        """
        graph test(%x: f32[n, 3]) {
          %c: f32[3, 2] = constant [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
          %c_4: f32[2] = constant [2.5, 2.5]
          %matmul_2: f32[n, 2] = MatMul(%x, %c, %c_4)
          return y0=%matmul_2
        }
        """
    )


def declined(case: str) -> Graph:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 7), 4)
    match case:
        case "data":
            return sketch.graph(sketch.op("Add", y, sketch.data(4, 1, 1, name="b")))
        case "differs within a channel":
            return sketch.graph(sketch.op("Add", y, sketch.weights(7)))
        case "another reader":
            return sketch.graph(sketch.op("Add", y, sketch.number(1.0)), y)
        case "broadcasts the result":
            return sketch.graph(sketch.op("Add", y, sketch.weights(2, 4, 1, 1)))
        case "a number that rounds fractions off":
            magic = sketch.number(1.5 * 2**23)
            return sketch.graph(sketch.op("Sub", sketch.op("Add", y, magic), magic))
        case "subtracted from":
            return sketch.graph(sketch.op("Sub", sketch.number(1.0), y))
        case _:
            assert case == "integers"
            product = sketch.op("MatMul", sketch.data(3, 4, dtype=I32, name="i"), sketch.number(1, (4, 5), I32))
            return sketch.graph(sketch.op("Add", product, sketch.number(1, (5,), I32)))


@pytest.mark.parametrize(
    "case",
    [
        "data",
        "differs within a channel",
        "another reader",
        "broadcasts the result",
        "a number that rounds fractions off",
        "subtracted from",
        "integers",
    ],
)
def test_declines(case: str) -> None:
    check_declines(fuse_bias, declined(case))
