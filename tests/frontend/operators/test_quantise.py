"""Quantised operators against onnx's reference and onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from foretell.support.errors import InvalidNode
from tests.frontend.operators.single_node import Numbers, assert_near, single_node

NARROW = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"]
NARROW_FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"]


def dtype_named(name: str) -> npt.DTypeLike:
    return getattr(ml_dtypes, name, None) or np.dtype(name)


def numbers(*shape: int, seed: int = 0, spread: float = 100) -> Numbers:
    return (np.random.default_rng(seed).standard_normal(shape) * spread).astype(np.float32)


def scales(*shape: int, seed: int = 1) -> Numbers:
    return np.random.default_rng(seed).uniform(0.05, 3, shape).astype(np.float32)


def zeros(shape: tuple[int, ...], name: str) -> Numbers:
    """Zero points, which are 0 for floats."""
    high = 1 if name in NARROW_FLOATS else 2 if "2" in name else 3
    return np.random.default_rng(2).integers(0, high, shape).astype(dtype_named(name))


@pytest.mark.parametrize("name", NARROW + NARROW_FLOATS)
@pytest.mark.parametrize(
    ("shape", "scale_shape", "attributes"),
    [
        ((2, 3, 5), (), {}),
        ((2, 3, 5), (1,), {}),
        ((7,), (7,), {}),
        ((2, 3, 5), (3,), {}),
        ((2, 3, 5), (5,), {"axis": -1}),
        ((4, 3), (2, 3), {"axis": 0, "block_size": 2}),
        ((2, 7), (2, 3), {"axis": 1, "block_size": 3}),
        ((3, 0), (), {}),
    ],
    ids=str,
)
def test_quantise_and_dequantise(
    name: str, shape: tuple[int, ...], scale_shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    scale, zero = scales(*scale_shape), zeros(scale_shape, name)
    if shape == (7,):
        attributes = {"axis": 0}
    forward = single_node("QuantizeLinear", [numbers(*shape, spread=10), scale, zero], opset=25, **attributes)
    (found,) = forward.run()
    assert found.dtype == zero.dtype
    assert_near([found], forward.by_reference())
    backward = single_node("DequantizeLinear", [found, scale, zero], opset=25, **attributes)
    assert_near(backward.run(), backward.by_reference())


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25])
def test_every_opset(opset: int) -> None:
    scale, zero = np.array(0.7, np.float32), np.array(5, np.uint8)
    forward = single_node("QuantizeLinear", [numbers(3, 4), scale, zero], opset=opset)
    backward = single_node("DequantizeLinear", [np.arange(8, dtype=np.uint8), scale, zero], opset=opset)
    assert_near(forward.run(), forward.by_reference())
    assert_near(backward.run(), [(np.arange(8, dtype=np.float32) - 5) * scale])


def test_without_a_zero_point() -> None:
    x, scale = numbers(5), np.array(2.0, np.float32)
    assert single_node("QuantizeLinear", [x, scale]).run()[0].dtype == np.uint8
    assert single_node("QuantizeLinear", [x, scale], output_dtype=TensorProto.INT4).run()[0].dtype == ml_dtypes.int4
    whole = single_node("DequantizeLinear", [np.array([-(2**31), 5], np.int32), scale])
    assert_near(whole.run(), whole.by_reference())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
def test_narrow_scales(dtype: npt.DTypeLike) -> None:
    x, scale = numbers(40, spread=20).astype(dtype), np.array(0.3, dtype)
    forward = single_node("QuantizeLinear", [x, scale, np.array(3, np.int8)])
    assert_near(forward.run(), forward.by_reference())
    backward = single_node("DequantizeLinear", [np.arange(9, dtype=np.int8), scale])
    assert_near(backward.run(), backward.by_reference())
    wide = single_node("DequantizeLinear", [np.arange(9, dtype=np.int8), scale], output_dtype=TensorProto.FLOAT)
    assert wide.run()[0].dtype == np.float32


def test_precision_is_that_of_the_division() -> None:
    x, scale = numbers(50, spread=1000), np.array(0.37, np.float32)
    node = single_node("QuantizeLinear", [x, scale, np.array(0, np.int16)], precision=TensorProto.FLOAT16)
    assert_near(node.run(), node.by_reference())


def test_scales_that_are_powers_of_two() -> None:
    scale = np.array([0.5, 4.0], ml_dtypes.float8_e8m0fnu)
    node = single_node("QuantizeLinear", [numbers(2, 6), scale, np.zeros(2, np.int8)], axis=0, opset=25)
    assert node.run()[0][1].tolist() == np.clip(np.rint(numbers(2, 6)[1] / 4), -128, 127).tolist()


def test_saturation_matters_for_float8() -> None:
    x, one = np.array([1e6, -1e6, 1.0], np.float32), np.array(1.0, np.float32)
    for saturate in (0, 1):
        zero = np.array(0).astype(ml_dtypes.float8_e4m3fn)
        node = single_node("QuantizeLinear", [x, one, zero], saturate=saturate)
        assert_near(node.run(), node.by_reference())


@settings(max_examples=25)
@given(st.data())
def test_quantise_as_onnxruntime(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["int8", "uint8", "int16", "uint16"])))
    element = st.one_of(st.floats(-1e3, 1e3, width=32), st.sampled_from([1e30, -1e30, 0.5, 1.5, np.inf, -np.inf]))
    x = np.array(data.draw(st.lists(element, min_size=1, max_size=20)), np.float32)
    zero = np.array(data.draw(st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max)), dtype)
    scale = np.array(data.draw(st.floats(0.015625, 100, width=32)), np.float32)
    node = single_node("QuantizeLinear", [x, scale, zero], opset=21)
    assert_near(node.run(), node.by_onnxruntime(), 0)


@pytest.mark.parametrize("x", [numbers(2, 3, 5), np.zeros((2, 2), np.float32), numbers(1) ** 2, -(numbers(4) ** 2)])
def test_dynamic_quantise_as_onnxruntime(x: Numbers) -> None:
    node = single_node("DynamicQuantizeLinear", [x], outputs=("y", "scale", "zero"), opset=11)
    assert_near(node.run(), node.by_onnxruntime(), 1e-6)


def bytes_like(dtype: str, *shape: int, seed: int = 0) -> Numbers:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("per_row", [False, True])
def test_qlinear_matmul(left: str, per_row: bool) -> None:
    a, b = bytes_like(left, 3, 5), bytes_like("int8", 5, 4, seed=1)
    rows, columns = ((3,), (4,)) if per_row else ((), ())
    operands = [a, scales(*rows), zeros(rows, left), b, scales(*columns), zeros(columns, "int8")]
    result = [np.array(40.0, np.float32), np.array(7, left)]
    node = single_node("QLinearMatMul", [*operands, *result], opset=21, constants=[5, 7])
    # The reference reads a vector of row scales as columns.
    expected = node.by_reference() if not per_row else [_qlinear_matmul(*operands, *result)]
    assert_near(node.run(), expected, 0)


def _qlinear_matmul(*operands: Numbers) -> Numbers:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    left, right = a.astype(np.int32) - a_zero[:, None].astype(np.int32), b.astype(np.int32) - b_zero.astype(np.int32)
    real = (left @ right) * (a_scale[:, None] * b_scale / y_scale)
    info = np.iinfo(y_zero.dtype)
    return np.clip(np.rint(real.astype(np.float32)) + y_zero, info.min, info.max).astype(y_zero.dtype)


@pytest.mark.parametrize("shapes", [((5,), (5, 4)), ((3, 5), (5,)), ((2, 3, 5), (5, 4)), ((1, 1), (1, 1))], ids=str)
def test_integer_matmul_as_numpy(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = bytes_like("uint8", *shapes[0]), bytes_like("uint8", *shapes[1], seed=1)
    node = single_node("MatMulInteger", [a, b, np.array([12], np.uint8), np.array(3, np.uint8)], opset=10)
    assert_near(node.run(), [(a.astype(np.int32) - 12) @ (b.astype(np.int32) - 3)], 0)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 0, 1], "strides": [2, 1]}, {"group": 2}], ids=str)
@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_conv_as_onnxruntime(kind: str, attributes: dict[str, Any], per_channel: bool) -> None:
    x = bytes_like(kind, 1, 4, 5, 6)
    # Where there is no VNNI, onnxruntime saturates the sum of two products: with seven bits none is too large.
    w = bytes_like("int8", 6, 4 // int(str(attributes.get("group", 1))), 3, 3, seed=1) // 2
    w_scale, w_zero = (scales(6), np.zeros(6, np.int8)) if per_channel else (scales(), np.array(0, np.int8))
    bias = np.arange(-3000, 3000, 1000, dtype=np.int32)
    quantities = [np.array(0.02, np.float32), np.array(3, kind)], [np.array(20.0, np.float32), np.array(9, kind)]
    operands = [x, *quantities[0], w, w_scale, w_zero, *quantities[1], bias]
    node = single_node("QLinearConv", operands, opset=10, constants=range(1, 9), **attributes)
    assert_near(node.run(), node.by_onnxruntime(), 0)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_qlinear_conv_of_all_weights_as_numpy(kind: str) -> None:
    """What saturates nowhere: a convolution of one tap is a product of matrices."""
    x, w = bytes_like(kind, 1, 4, 5, 6), bytes_like("int8", 6, 4, 1, 1, seed=1)
    quantities = [np.array(0.5, np.float32), np.array(3, kind)], [np.array(64.0, np.float32), np.array(9, kind)]
    operands = [x, *quantities[0], w, np.array(0.25, np.float32), np.array(0, np.int8), *quantities[1]]
    node = single_node("QLinearConv", operands, opset=10, constants=range(1, 8))
    sums = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(np.int64), x.astype(np.int64) - 3)
    limits = np.iinfo(kind)
    expected = np.clip(np.rint(sums * (0.5 * 0.25 / 64.0)) + 9, limits.min, limits.max).astype(kind)
    assert_near(node.run(), [expected], 0)


def test_integer_conv_pads_with_its_zero_point() -> None:
    x, w = bytes_like("uint8", 1, 2, 4, 4), bytes_like("uint8", 3, 2, 3, 3, seed=1)
    node = single_node("ConvInteger", [x, w, np.array(7, np.uint8), np.array(5, np.uint8)], opset=10, pads=[1, 1, 1, 1])
    assert_near(node.run(), node.by_onnxruntime(), 0)


def test_symbolic_dimensions() -> None:
    x, scale, zero = numbers(2, 3), scales(3), zeros((3,), "int8")
    node = single_node("QuantizeLinear", [x, scale, zero], symbolic=True)
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize(
    ("scale", "attributes", "message"),
    [
        ((3,), {}, "do not fit"),
        ((4,), {"axis": 2}, "out of range"),
        ((2, 4), {}, "need a block_size"),
        ((2, 3), {"block_size": 2}, "need scales of shape"),
        ((2, 1), {"block_size": 3}, "need scales of shape"),
        ((2,), {"block_size": -1}, "block_size is -1"),
        ((), {"output_dtype": TensorProto.INT4}, "zero point is u8"),
        ((), {"precision": TensorProto.INT32}, "cannot quantise"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(scale: tuple[int, ...], attributes: dict[str, Any], message: str) -> None:
    zero = np.zeros(scale, np.uint8)
    with pytest.raises(InvalidNode, match=message):
        single_node("QuantizeLinear", [numbers(2, 4), scales(*scale), zero], **attributes).graph()


def test_a_result_that_cannot_be_quantised_is_refused() -> None:
    x, one = numbers(2), np.array(1.0, np.float32)
    with pytest.raises(InvalidNode, match="cannot quantise to i32"):
        single_node("QuantizeLinear", [x, one], output_dtype=TensorProto.INT32).graph()
    with pytest.raises(InvalidNode, match="cannot dequantise to i8"):
        single_node("DequantizeLinear", [np.zeros(2, np.int8), one], output_dtype=TensorProto.INT8).graph()
