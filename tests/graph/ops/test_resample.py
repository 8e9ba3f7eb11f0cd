"""Resampling by tables against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.optable import OPS
from foretell.ir import dtypes
from foretell.ir.dtypes import F16, F32, F64, I64, DType
from foretell.ir.tensor_expr import TensorType, definition_flops


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((1,), 0), ((3, 5), 1), ((2, 3, 4), 0), ((2, 3, 4), 1), ((0, 3), 1)])
@pytest.mark.parametrize(("length", "taps"), [(1, 1), (7, 2), (4, 3), (0, 2), (2, 0)])
def test_resample(shape: tuple[int, ...], axis: int, length: int, taps: int, dtype: DType) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype(dtype.numpy)
    indices = random.integers(0, shape[axis], (length, taps))
    weights = random.standard_normal((length, taps)).astype(dtype.numpy)
    build = Builder("test")
    feeds = {"x": x, "i": indices, "w": weights}
    operands = [build.input(name, TensorType(dtypes.from_numpy(a.dtype), a.shape)) for name, a in feeds.items()]
    graph = build.finish([build.op("Resample", *operands, axis=axis)], ["y"])
    found = evaluate(graph, feeds)["y"]
    across = (1,) * axis + (length, taps) + (1,) * (len(shape) - 1 - axis)
    expected = (np.take(x.astype(np.float64), indices, axis) * weights.astype(np.float64).reshape(across)).sum(axis + 1)
    assert found.dtype == x.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=5e-3 if dtype == F16 else 1e-5)


def test_flops() -> None:
    define = OPS["Resample"].define
    assert define is not None
    tables = TensorType(I64, (10, 4)), TensorType(F32, (10, 4))
    assert definition_flops(define((TensorType(F32, (2, 3, 5)), *tables), {"axis": 2})) == 2 * 3 * 10 * 4 * 2


@pytest.mark.parametrize(
    ("indices", "weights", "axis", "message"),
    [
        (TensorType(I64, (4, 2)), TensorType(F32, (4, 2)), 2, "no axis 2"),
        (TensorType(I64, (4, 2)), TensorType(F32, (4, 3)), 0, "differ"),
        (TensorType(I64, (4,)), TensorType(F32, (4,)), 0, "differ"),
        (TensorType(I64, (4, 2)), TensorType(F64, (4, 2)), 0, "one type"),
    ],
)
def test_tables_that_do_not_fit(indices: TensorType, weights: TensorType, axis: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OPS["Resample"].infer((TensorType(F32, (3, 5)), indices, weights), {"axis": axis})
