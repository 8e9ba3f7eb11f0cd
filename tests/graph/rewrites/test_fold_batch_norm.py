from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.nodes import Value
from foretell.graph.rewrites.fold_batch_norm import fold_batch_norm
from foretell.ir.dtypes import BF16, F16, F32, F64, DType
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, text

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1)}


def conv(g: Sketch, x: Value, channels: int, group: int = 1, bias: bool = True) -> Value:
    inputs = x.shape[1]
    assert isinstance(inputs, int)
    weights = g.weights(channels, inputs // group, 3, 3, dtype=x.dtype, seed=5)
    extra = (g.weights(channels, dtype=x.dtype, seed=6),) if bias else ()
    return g.op("Conv", x, weights, *extra, group=group, **WINDOW)


def batch_norm(g: Sketch, x: Value, channels: int, variance: float = 0.7) -> Value:
    scale, bias, mean = (g.weights(channels, dtype=x.dtype, seed=seed) for seed in (1, 2, 3))
    return g.op("BatchNorm", x, scale, bias, mean, g.number(variance, (channels,), x.dtype), epsilon=1e-3)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("channels", "group"), [(1, 1), (6, 1), (6, 3)])
@pytest.mark.parametrize("batch", [1, 3, Sym("n", 1)], ids=str)
def test_into_a_convolution(channels: int, group: int, bias: bool, dtype: DType, batch: Dim) -> None:
    sketch = Sketch()
    x = sketch.data(batch, 1 if channels == 1 else 6, 5, 7, dtype=dtype)
    y = batch_norm(sketch, conv(sketch, x, channels, group, bias), channels)
    check_rewrite(fold_batch_norm, sketch.graph(y), ops=["Conv"])


def test_golden() -> None:
    sketch = Sketch()
    sketch.location = "stem/conv"
    y = conv(sketch, sketch.data(1, 3, 8, 8), 4, bias=False)
    sketch.location = "stem/norm"
    after = fold_batch_norm(sketch.graph(batch_norm(sketch, y, 4)))
    assert [node.location for node in after.nodes] == ["stem/conv"]
    lines = str(after).splitlines()
    assert lines[0] == "graph test(%x: f32[1, 3, 8, 8]) {" and lines[3].startswith("  %conv_1: f32[1, 4, 8, 8] = Conv(")


def test_golden_without_a_convolution() -> None:
    sketch = Sketch()
    x = sketch.data(1, 2, 3)
    ones, halves = sketch.number(1.0, (2,)), sketch.number(0.5, (2,))
    y = sketch.op("BatchNorm", x, ones, halves, halves, sketch.number(3.0, (2,)), epsilon=1.0)
    assert str(check_rewrite(fold_batch_norm, sketch.graph(y), ops=["Mul", "Add"])) == text(
        """
        graph test(%x: f32[1, 2, 3]) {
          %c_3: f32[2, 1] = constant [[0.5], [0.5]]
          %c_4: f32[2, 1] = constant [[0.25], [0.25]]
          %mul: f32[1, 2, 3] = Mul(%x, %c_3)
          %add: f32[1, 2, 3] = Add(%mul, %c_4)
          return y0=%add
        }
        """
    )


def test_into_a_matrix_product() -> None:
    sketch = Sketch()
    y = sketch.op("MatMul", sketch.data(3, 4), sketch.weights(4, 5))
    check_rewrite(fold_batch_norm, sketch.graph(batch_norm(sketch, y, 5)), ops=["MatMul"])
    deep = Sketch()
    z = deep.op("MatMul", deep.data(3, 5, 4), deep.weights(4, 2))  # channels of the product are not those of the norm
    check_rewrite(fold_batch_norm, deep.graph(batch_norm(deep, z, 5)), ops=["MatMul", "Mul", "Add"])


def test_two_norms_in_a_row() -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 5), 4)
    y = batch_norm(sketch, batch_norm(sketch, y, 4), 4)
    check_rewrite(fold_batch_norm, sketch.graph(y), ops=["Conv"])


def test_a_convolution_with_other_readers_keeps_its_weights() -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 5), 4)
    check_rewrite(fold_batch_norm, sketch.graph(batch_norm(sketch, y, 4), y), ops=["Conv", "Mul", "Add"])


def test_weights_that_two_convolutions_share_stay_shared() -> None:
    sketch = Sketch()
    x, weights = sketch.data(1, 64, 5, 5), sketch.weights(64, 64, 3, 3)
    both = [sketch.op("Conv", value, weights, group=1, **WINDOW) for value in (x, sketch.op("Neg", x))]
    graph = sketch.graph(*(batch_norm(sketch, y, 64) for y in both))
    check_rewrite(fold_batch_norm, graph, ops=["Neg", "Conv", "Conv", "Mul", "Add", "Mul", "Add"])


def test_weights_that_are_one_number_stay_small() -> None:
    sketch = Sketch()
    weights = sketch.op("Broadcast", sketch.number(0.5), shape=(4, 3, 3, 3))
    y = sketch.op("Conv", sketch.data(1, 3, 5, 5), weights, group=1, **WINDOW)
    after = check_rewrite(fold_batch_norm, sketch.graph(batch_norm(sketch, y, 4)), ops=["Broadcast", "Conv"])
    assert {value.shape for value in after.constants} == {(4, 1, 1, 1), (4,)}


def test_weights_that_would_overflow_stay_as_they_are() -> None:
    sketch = Sketch()
    x = sketch.data(1, 1, 3, 3, dtype=F16)
    weights = sketch.number(60000.0, (1, 1, 1, 1), F16)
    window = {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "group": 1}
    y = sketch.op("Conv", sketch.op("Mul", x, sketch.number(1e-4, dtype=F16)), weights, **window)
    two, zero = sketch.number(2.0, (1,), F16), sketch.number(0.0, (1,), F16)
    y = sketch.op("BatchNorm", y, two, zero, zero, sketch.number(1.0, (1,), F16), epsilon=0.0)
    check_rewrite(fold_batch_norm, sketch.graph(y), ops=["Mul", "Conv", "Mul", "Add"])


def test_a_negative_variance_is_still_nan() -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 5), 4)
    graph = sketch.graph(batch_norm(sketch, y, 4, variance=-1.0))
    after = fold_batch_norm(graph)
    assert_same_results(graph, after)


def test_declines_parameters_that_are_data() -> None:
    sketch = Sketch()
    x = sketch.data(1, 4, 3)
    parameters = [sketch.data(4, name=name) for name in ("scale", "bias", "mean", "variance")]
    check_declines(fold_batch_norm, sketch.graph(sketch.op("BatchNorm", x, *parameters, epsilon=0.1)))


def test_the_weights_are_rounded_once() -> None:
    sketch = Sketch()
    y = conv(sketch, sketch.data(1, 3, 5, 5), 4, bias=False)
    graph = sketch.graph(batch_norm(sketch, y, 4))
    after = fold_batch_norm(graph)
    old = next(array for value, array in graph.constants.items() if value.type.rank == 4)
    new = next(array for value, array in after.constants.items() if value.type.rank == 4)
    scale = next(array for value, array in graph.constants.items() if value.shape == (4,))
    factor = scale.astype(np.float64) / np.sqrt(np.float64(np.float32(0.7)) + 1e-3)
    assert np.array_equal(new, (old.astype(np.float64) * factor.reshape(4, 1, 1, 1)).astype(np.float32))
