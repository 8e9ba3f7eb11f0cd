"""Quantisation: real numbers as small integers or narrow floats with a scale and a zero point.

    Quantise(x, scale?, zero?){to, precision, saturate, axis, block}:    y = saturate(round(x / scale) + zero)
    Dequantise(x, scale, zero?){to, axis, block}:                        y = (x - zero) * scale

Scales and zero points broadcast to x, except that along `axis` each serves `block` elements: they are read at
i // block there. A block of 1 is plain broadcasting. Rounding goes to even; a NaN becomes the least integer.
"""

from __future__ import annotations

from foretell.graph.ops.attrs import dtype_attr, int_attr
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir import expr
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Cast,
    Const,
    Definition,
    Load,
    Operand,
    Scalar,
    Select,
    Stage,
    TensorType,
    axes_over,
    dtype_of,
)


def _infer(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, axis, block = present(operands[0]), int_attr(attrs, "axis"), int_attr(attrs, "block")
    if block < 1:
        raise ValueError(f"blocks of {block} elements")
    # What the scales spread over: x itself, or its number of blocks.
    spread = tuple(expr.ceildiv(dim, block) if number == axis else dim for number, dim in enumerate(x.shape))
    for operand in operands[1:]:
        if operand is not None and not _broadcasts(operand.shape, spread):
            raise ValueError(f"scales or zero points of shape {operand.shape} do not fit {x} in blocks of {block}")
    return (TensorType(dtype_attr(attrs, "to"), x.shape),)


def _broadcasts(shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> bool:
    own = target[max(0, len(target) - len(shape)) :]
    return len(shape) <= len(target) and all(
        not isinstance(a, int) or not isinstance(b, int) or a in (1, b) for a, b in zip(shape, own, strict=True)
    )


def _load(operands: Operands, number: int, axes: tuple[Axis, ...], attrs: Attrs) -> Load | None:
    """Operand `number` at the point `axes`, or None if it is absent."""
    operand = operands[number] if number < len(operands) else None
    if operand is None:
        return None
    blocked, block, first = int_attr(attrs, "axis"), int_attr(attrs, "block"), len(axes) - operand.rank
    indices: list[Dim] = []
    for position, dim in enumerate(operand.shape, first):
        sym: Dim = axes[position].sym
        wide = dim != 1 or axes[position].extent == 1
        indices.append((sym // block if position == blocked else sym) if wide else 0)
    return Load(Operand(number), tuple(indices), operand.dtype)


def _rounded(value: Scalar, dtype: DType) -> Scalar:
    """The value as `dtype` holds it, carried on in the compute type."""
    exact = value.dtype if isinstance(value, Load) else dtype_of(value)
    return value if exact == dtype else Cast(value, dtype)


def define_quantise(operands: Operands, attrs: Attrs) -> Definition:
    """The division is done in `precision`; the sum with the zero point is exact wherever it does not saturate."""
    x, to, precision = present(operands[0]), dtype_attr(attrs, "to"), dtype_attr(attrs, "precision")
    axes = axes_over(x.shape)
    scale, zero = _load(operands, 1, axes, attrs), _load(operands, 2, axes, attrs)
    value = _rounded(Load(Operand(0), tuple(axis.sym for axis in axes), x.dtype), precision)
    if scale is not None:
        value = _rounded(Apply("div", (value, _rounded(scale, precision))), precision)
    if to.is_integer:
        value = Apply("round", (value,))
    if zero is not None:
        value = Apply("add", (value, Cast(zero, precision.compute)))
    body = _clamped(value, to) if to.is_integer else Cast(value, to, bool(attrs["saturate"]))
    return Definition((Stage("y", to, axes, body),), (0,))


def _clamped(value: Scalar, to: DType) -> Scalar:
    least, greatest = integer_range(to)
    low, high = Const(float(least), dtype_of(value)), Const(float(greatest), dtype_of(value))
    # The comparison is false for NaN, which so becomes the least integer.
    return Cast(Select(Apply("gt", (value, low)), Apply("min", (value, high)), low), to)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def define_dequantise(operands: Operands, attrs: Attrs) -> Definition:
    x, to = present(operands[0]), dtype_attr(attrs, "to")
    axes = axes_over(x.shape)
    scale, zero = _load(operands, 1, axes, attrs), _load(operands, 2, axes, attrs)
    assert scale is not None, "Dequantise needs a scale"
    value = _rounded(Load(Operand(0), tuple(axis.sym for axis in axes), x.dtype), to.compute)
    if zero is not None:
        value = Apply("sub", (value, Cast(zero, to.compute)))
    body = Apply("mul", (value, _rounded(scale, to.compute)))
    return Definition((Stage("y", to, axes, body),), (0,))


QUANTISE: dict[str, OpDef] = {
    "Quantise": OpDef("Quantise", _infer, define_quantise),
    "Dequantise": OpDef("Dequantise", _infer, define_dequantise),
}
