"""ONNX quantisation: per tensor, per axis or in blocks, and the operators that compute on quantised numbers.

Integer products are summed in i32; then one multiplication by (scale of a * scale of b / scale of y) in f32 and one
rounding give the quantised result, as integer-only inference does (Jacob et al., arXiv 1712.05877).
"""

from __future__ import annotations

from foretell.frontend.onnx_node import OnnxNode, normal_axis
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.operators.contraction import along_axis, centred, conv, matmul
from foretell.frontend.operators.importer import Importer
from foretell.graph.build import Builder
from foretell.graph.nodes import Value
from foretell.ir import expr
from foretell.ir.dtypes import F8E8M0, F32, F64, I32, U8, DType


def quantise(build: Builder, x: Value, scale: Value | None, zero: Value | None, to: DType) -> Value:
    """round(x / scale) + zero in f32, saturated, with scales and zero points that broadcast."""
    return build.op("Quantise", x, scale, zero, to=to, precision=F32, saturate=True, axis=0, block=1)


def _quantize_linear(node: OnnxNode) -> Value | None:
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    to = _named_dtype(node, "output_dtype", U8 if zero is None else zero.dtype)
    precision = _named_dtype(node, "precision", _division_dtype(x, scale))
    if to is None or precision is None:
        return None
    if zero is not None and zero.dtype != to:
        raise ValueError(f"output_dtype is {to}, but the zero point is {zero.dtype}")
    if to.bits > 16 or not (to.is_integer or to.bits <= 8) or not precision.is_float:
        raise ValueError(f"cannot quantise to {to} with a division in {precision}")
    saturate = bool(node.int("saturate", 1))
    axis, block = _granularity(node)
    scales, zeros = _spread(node, scale), None if zero is None else _spread(node, zero)
    return node.build.op(
        "Quantise", x, scales, zeros, to=to, precision=precision, saturate=saturate, axis=axis, block=block
    )


def _dequantize_linear(node: OnnxNode) -> Value | None:
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    to = _named_dtype(node, "output_dtype", scale.dtype)
    if to is None:
        return None
    if not to.is_float or to.bits < 16:
        raise ValueError(f"cannot dequantise to {to}")
    axis, block = _granularity(node)
    scales, zeros = _spread(node, scale), None if zero is None else _spread(node, zero)
    return node.build.op("Dequantise", x, scales, zeros, to=to, axis=axis, block=block)


def _named_dtype(node: OnnxNode, attribute: str, default: DType) -> DType | None:
    """The dtype an attribute names, where 0 stands for the default; None if tensors cannot hold it."""
    code = node.int(attribute, 0)
    return DTYPE_OF_ONNX.get(code) if code else default


def _division_dtype(x: Value, scale: Value) -> DType:
    """A division is done in the scale's type, unless that is no type to divide in."""
    if scale.dtype.is_float and scale.dtype != F8E8M0:
        return scale.dtype
    return x.dtype if x.dtype.is_float else F64


def _granularity(node: OnnxNode) -> tuple[int, int]:
    """(axis, elements per scale along it): blocks of one unless the quantisation is blocked."""
    x, scale, size = node.input(0), node.input(1), node.int("block_size", 0)
    if size < 0:
        raise ValueError(f"block_size is {size}")
    if size == 0 or scale.type.elements == 1:
        return 0, 1
    axis = node.axis(x.type.rank, default=1)
    extent = x.shape[axis]
    block = max(1, min(size, extent)) if isinstance(extent, int) else size
    expected = tuple(expr.ceildiv(dim, block) if number == axis else dim for number, dim in enumerate(x.shape))
    if scale.type.rank != x.type.rank or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(scale.shape, expected, strict=True)
    ):
        raise ValueError(f"blocks of {size} on axis {axis} of {x.type} need scales of shape {expected}")
    return axis, block


def _spread(node: OnnxNode, value: Value) -> Value:
    """A scale or zero point in a shape that broadcasts to x: a vector runs along the axis."""
    rank = node.input(0).type.rank
    if value.type.rank < 2 and value.type.elements != 1:
        # A vector has one axis to run along, whatever the attribute's default says.
        axis = 0 if rank == 1 else normal_axis(node.int("axis", 1), rank)
        return along_axis(node.build, value, rank, axis)
    if value.type.elements != 1 and not node.int("block_size", 0):
        raise ValueError(f"scales and zero points of shape {value.shape} need a block_size")
    return along_axis(node.build, value, rank, 0)


def _dynamic_quantize_linear(node: OnnxNode) -> tuple[Value, ...]:
    """Scale and zero point such that 0..255 spans [min, max] of x and 0; all zeros get a scale of 1."""
    x, build = node.input(0), node.build
    axes, nothing = tuple(range(x.type.rank)), node.scalar(0, x)
    high = build.op("Max", build.op("ReduceMax", x, axes=axes, keepdims=False), nothing)
    low = build.op("Min", build.op("ReduceMin", x, axes=axes, keepdims=False), nothing)
    width = build.op("Sub", high, low)
    step = build.op("Div", width, node.scalar(255, x))
    scale = build.op("Where", build.op("Equal", width, nothing), node.scalar(1, x), step)
    zero = quantise(build, build.op("Neg", low), scale, None, U8)
    return quantise(build, x, scale, zero, U8), scale, zero


def _qlinear_matmul(node: OnnxNode) -> Value | None:
    a, b = node.input(0), node.input(3)
    if not all(node.input(number).type.elements == 1 for number in (6, 7)):
        return None
    build, rows = node.build, max(a.type.rank - 2, 0)
    sum_dtype = F32 if a.dtype.is_float or b.dtype.is_float else I32
    left = centred(build, a, node.input(2), rows, sum_dtype)
    right = centred(build, b, node.input(5), b.type.rank - 1, sum_dtype)
    total = matmul(build, left, right)
    scales = (
        along_axis(build, node.input(1), a.type.rank, rows),
        along_axis(build, node.input(4), b.type.rank, b.type.rank - 1),
    )
    return _requantised(build, total, scales, node.input(6), node.input(7))


def _qlinear_conv(node: OnnxNode) -> Value | None:
    if not all(node.input(number).type.elements == 1 for number in (1, 2, 6, 7)):
        return None
    x, w, build = node.input(0), node.input(3), node.build
    # Padding stands for the zero point, which is 0 once it is subtracted.
    data, weights = centred(build, x, node.input(2), 0), centred(build, w, node.input(5), 0)
    total = conv(node, data, weights, node.optional(8))
    scales = along_axis(build, node.input(1), 0, 0), along_axis(build, node.input(4), x.type.rank - 1, 0)
    return _requantised(build, total, scales, node.input(6), node.input(7))


def _requantised(build: Builder, total: Value, scales: tuple[Value, Value], scale: Value, zero: Value) -> Value:
    """A sum of products, whose unit is the product of two scales, in units of the result's scale."""
    left, right = (build.cast(value, F32) for value in scales)
    factor = build.op("Div", build.op("Mul", left, right), build.cast(build.reshape(scale, ()), F32))
    scaled = build.op("Mul", build.cast(total, F32), factor)
    return quantise(build, scaled, None, build.reshape(zero, ()), zero.dtype)


QUANTISE_IMPORTERS: dict[str, Importer] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
}
