"""Softmax and norms against onnxruntime, onnx's reference, or the equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from foretell.support.errors import InvalidNode, UnsupportedOperators
from tests.frontend.operators.single_node import Numbers, SingleNode, assert_near, single_node

SHAPES = [(2, 3, 4, 5), (1, 3, 1, 1), (3, 1, 7), (2, 6)]


def numbers(*shape: int, dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operators(node: SingleNode) -> list[str]:
    return [operator.op for operator in node.native_graph().nodes]


# --- softmax -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": 2}], ids=str)
def test_softmax_before_and_since_13(op_type: str, opset: int, attributes: dict[str, Any]) -> None:
    node = single_node(op_type, [numbers(2, 3, 5)], opset=opset, **attributes)
    assert_near(node.run(), node.by_onnxruntime())


def test_softmax_is_one_node_along_an_axis() -> None:
    assert operators(single_node("Softmax", [numbers(2, 3, 5)], axis=1)) == ["Softmax"]


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmax_of_large_numbers_does_not_overflow(op_type: str) -> None:
    node = single_node(op_type, [np.array([[1e4, -1e4, 1e4 + 1]], np.float32)])
    assert np.isfinite(node.run()[0]).all()
    assert_near(node.run(), node.by_onnxruntime())


def test_softmax_of_nothing_allocates_nothing() -> None:
    """Its maxima would fill 4 TB; the constant is folded while it is imported."""
    assert single_node("Softmax", [np.empty((1 << 40, 0), np.float32)], constants=[0]).run()[0].shape == (1 << 40, 0)


def test_softmax_spreads_nan() -> None:
    assert np.isnan(single_node("Softmax", [np.array([[np.nan, 1], [0, 1]], np.float32)]).run()[0]).tolist() == [
        [True, True],
        [False, False],
    ]


def test_hardmax_takes_the_first_of_equals() -> None:
    assert single_node("Hardmax", [np.array([[1, 3, 3]], np.float32)]).run()[0].tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("op_type", ["Softmax", "Hardmax"])
def test_an_axis_out_of_range_is_refused(op_type: str) -> None:
    with pytest.raises(InvalidNode, match="axis 3 is out of range"):
        single_node(op_type, [numbers(2, 3)], axis=3).graph()


def test_an_old_softmax_may_start_behind_the_last_axis() -> None:
    assert single_node("Softmax", [numbers(3)], opset=7).run()[0].tolist() == [1, 1, 1]


# --- layer, instance, group and rms norms --------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization(axis: int, bias: bool) -> None:
    x = numbers(2, 3, 5)
    scale, shift = numbers(*x.shape[axis:], seed=1), numbers(*x.shape[axis:], seed=2)
    operands = [x, scale, shift if bias else None]
    node = single_node("LayerNormalization", operands, outputs=("y", "mean", "inverse"), axis=axis, epsilon=1e-3)
    assert_near(node.run(), node.by_onnxruntime())
    assert operators(single_node("LayerNormalization", operands, axis=axis)) == ["LayerNorm"]


def test_layer_normalization_keeps_statistics_in_float() -> None:
    x, scale = numbers(2, 300, dtype=np.float16) * 100, np.ones(300, np.float16)
    node = single_node("LayerNormalization", [x, scale], outputs=("y", "mean", "inverse"))
    y, mean, inverse = node.run()
    assert y.dtype == np.float16 and mean.dtype == inverse.dtype == np.float32
    assert_near([mean], [x.astype(np.float32).mean(axis=1, keepdims=True)], 1e-4)


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization(axis: int) -> None:
    x = numbers(2, 3, 5)
    node = single_node("RMSNormalization", [x, numbers(*x.shape[axis:], seed=1)], axis=axis, epsilon=1e-2)
    assert_near(node.run(), node.by_reference())
    assert operators(node) == ["RMSNorm"]


def test_rms_normalization_has_the_type_of_its_scale() -> None:
    x, scale = numbers(2, 4, dtype=np.float16), numbers(4)
    (found,) = single_node("RMSNormalization", [x, scale]).run()
    wide = x.astype(np.float32)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * scale
    assert_near([found], [expected], 1e-5)


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.parametrize("opset", [7, 22])
def test_instance_normalization(shape: tuple[int, ...], opset: int) -> None:
    channels = shape[1]
    operands = [numbers(*shape), numbers(channels, seed=1), numbers(channels, seed=2)]
    node = single_node("InstanceNormalization", operands, opset=opset, epsilon=0.1)
    assert_near(node.run(), node.by_reference())


def test_instance_normalization_without_space_is_its_bias() -> None:
    bias = numbers(3, seed=2)
    node = single_node("InstanceNormalization", [numbers(2, 3), numbers(3, seed=1), bias])
    assert_near(node.run(), [np.stack([bias, bias])])


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(("opset", "per"), [(18, "group"), (21, "channel")])
def test_group_normalization(groups: int, opset: int, per: str) -> None:
    x, count = numbers(2, 6, 3, 2), groups if per == "group" else 6
    scale, bias = numbers(count, seed=1), numbers(count, seed=2)
    node = single_node("GroupNormalization", [x, scale, bias], opset=opset, num_groups=groups, epsilon=0.01)
    parts = x.reshape(2, groups, -1)
    normal = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 0.01)
    repeat = 6 // count
    wide_scale, wide_bias = (np.repeat(a, repeat)[:, None, None] for a in (scale, bias))
    assert_near(node.run(), [normal.reshape(x.shape) * wide_scale + wide_bias], 1e-4)


@pytest.mark.parametrize("groups", [0, 4, 10**18])
def test_groups_that_do_not_divide_are_refused(groups: int) -> None:
    operands = [numbers(2, 6, 3), numbers(6), numbers(6)]
    with pytest.raises(InvalidNode, match=r"do not divide|has no 0 groups"):
        single_node("GroupNormalization", operands, opset=21, num_groups=groups).graph()
    with pytest.raises(InvalidNode, match=r"do not divide|has no 0 groups"):
        single_node("GroupNormalization", [numbers(2, 0, 3), numbers(0), numbers(0)], num_groups=groups).graph()


# --- batch norms ---------------------------------------------------------------------------------------------


def batch_norm_operands(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> list[Numbers]:
    channels = shape[1]
    parameters = [numbers(channels, dtype=dtype, seed=seed) for seed in range(1, 4)]
    return [numbers(*shape, dtype=dtype), *parameters, np.abs(numbers(channels, dtype=dtype, seed=4)) + 1]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(shape: tuple[int, ...], opset: int) -> None:
    node = single_node("BatchNormalization", batch_norm_operands(shape), opset=opset, epsilon=1e-2)
    assert_near(node.run(), node.by_onnxruntime())
    assert operators(node) == ["BatchNorm"]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("opset", [14, 15])
def test_batch_normalization_in_training(shape: tuple[int, ...], opset: int) -> None:
    node = single_node(
        "BatchNormalization",
        batch_norm_operands(shape),
        outputs=("y", "mean", "variance"),
        opset=opset,
        training_mode=1,
        momentum=0.7,
    )
    assert_near(node.run(), node.by_reference(), 1e-4)


def test_batch_normalization_of_opset_9_trains_when_it_has_more_outputs() -> None:
    operands, names = batch_norm_operands((4, 3, 2)), ("y", "mean", "variance", "saved_mean", "saved_variance")
    old = single_node("BatchNormalization", operands, outputs=names, opset=9).run()
    new = single_node("BatchNormalization", operands, outputs=names[:3], opset=14, training_mode=1).run()
    assert_near(old[:3], new)
    assert_near(old[3:], [operands[0].mean(axis=(0, 2)), operands[0].var(axis=(0, 2))], 1e-5)


def test_training_statistics_of_half_precision_do_not_overflow() -> None:
    operands = batch_norm_operands((64, 1, 64), np.float16)
    operands[0] = (operands[0] + 200).astype(np.float16)
    names = ("y", "mean", "variance")
    y, mean, variance = single_node("BatchNormalization", operands, outputs=names, opset=15, training_mode=1).run()
    assert all(np.isfinite(array).all() and array.dtype == np.float16 for array in (y, mean, variance))


def test_batch_normalization_may_keep_statistics_per_element() -> None:
    x = numbers(2, 3, 4)
    scale, bias, mean, variance = (np.abs(numbers(3, 4, seed=seed)) + 0.5 for seed in range(1, 5))
    node = single_node("BatchNormalization", [x, scale, bias, mean, variance], opset=7, spatial=0)
    assert_near(node.run(), [(x - mean) / np.sqrt(variance + 1e-5) * scale + bias])
    with pytest.raises(UnsupportedOperators, match="not spatial"):
        trained = single_node(
            "BatchNormalization", [x, scale, bias, mean, variance], outputs=("y", "m", "v"), opset=7, spatial=0
        )
        trained.graph()


def test_batch_normalization_needs_channels() -> None:
    with pytest.raises(InvalidNode, match="channel axis"):
        single_node("BatchNormalization", [numbers(4)] * 5, opset=15).graph()
    with pytest.raises(InvalidNode, match="training mode only"):
        outputs = ("y", "mean", "variance")
        single_node("BatchNormalization", batch_norm_operands((2, 3)), outputs=outputs, opset=15).graph()
    with pytest.raises(InvalidNode, match="does not broadcast"):
        single_node("BatchNormalization", [numbers(2, 3, 4), *[numbers(4)] * 4], opset=15).graph()


# --- others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization(order: int, axis: int) -> None:
    x = numbers(3, 4)
    x[:, 1] = 0
    x[2] = 0
    with np.errstate(all="ignore"):
        norm = np.linalg.norm(x, order, axis=axis, keepdims=True)
        expected = np.where(norm == 0, 0, x / norm).astype(np.float32)
    assert_near(single_node("LpNormalization", [x], p=order, axis=axis).run(), [expected])


def test_other_orders_are_refused() -> None:
    with pytest.raises(InvalidNode, match="p must be 1 or 2"):
        single_node("LpNormalization", [numbers(2, 3)], p=3).graph()


@pytest.mark.parametrize("attributes", [{}, {"axes": [0, -1]}], ids=str)
def test_mean_variance_normalization(attributes: dict[str, Any]) -> None:
    node = single_node("MeanVarianceNormalization", [numbers(2, 3, 4, 5)], opset=13, **attributes)
    assert_near(node.run(), node.by_onnxruntime(), 1e-4)


@pytest.mark.parametrize("op_type", ["Softmax", "LayerNormalization", "InstanceNormalization"])
def test_symbolic_dimensions(op_type: str) -> None:
    operands = {"Softmax": 1, "LayerNormalization": 2, "InstanceNormalization": 3}[op_type]
    width = 4 if op_type == "LayerNormalization" else 3
    inputs = [numbers(2, 3, 4), numbers(width, seed=1), numbers(width, seed=2)][:operands]
    node = single_node(op_type, inputs, symbolic=True)
    assert_near(node.run(), node.by_reference())
