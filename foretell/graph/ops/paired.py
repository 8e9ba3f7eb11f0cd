"""Sums of products with fewer multiplications, by Winograd's identity for inner products.

    x0*w0 + x1*w1  =  (x0 + w1) * (x1 + w0)  -  x0*x1  -  w0*w1

What is subtracted depends on the row of x alone, or on the column of w alone. Of each three products of a sum two are
paired: two multiply-adds and two additions remain, which suits a CPU that does both at the same time.

    size[i] = sum[k] |x[i, k]|
    z[i, k] = x[i, k] / size[i]
    pairs[i] = sum[g, t] z[i, g, 0, t] * z[i, g, 1, t]                  where k = (3 * g + n) * T + t  is  [g, n, t]
    sum[i, j] = sum[g, t] (z[i, g, 0, t] + second[g, t, j]) * (z[i, g, 1, t] + first[g, t, j])
                          + z[i, g, 2, t] * third[g, t, j]
    y[i, j] = (sum[i, j] + z[i, the rest] * rest[j] - pairs[i] - shift[j]) * size[i] * scale[j] + bias[j]

Rounding errors go with the squares of both x and w. So rows, by their sizes, and columns, at compile time, are brought
to like magnitudes (`rewrites/pair_products.py`); errors are then as if single products were added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.graph.ops.attrs import ints_attr
from foretell.graph.ops.elementwise import load_broadcast
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Const,
    Definition,
    Load,
    Local,
    Operand,
    Scalar,
    Stage,
    TensorType,
    axes_over,
    axis_over,
)

PARTS = ("first", "second", "third", "rest", "scale", "shift", "bias")
"""Operands after x: three of [..., g, t, j], one of [..., e, j], and others of [..., 1, j]; the last may be absent."""
LEAST_SIZE = 1e-30
"""Added to the size of a row, so that rows of zeros can be divided by it."""


def infer_paired_matmul(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, first, rest = present(operands[0]), present(operands[1]), present(operands[4])
    _check_parts(x.shape[-1], first, rest)
    return (TensorType(x.dtype, (*x.shape[:-1], first.shape[-1])),)


def define_paired_matmul(operands: Operands, attrs: Attrs) -> Definition:
    """x[batch..., i, k]: parts may have the same batch."""
    x, (out,) = present(operands[0]), infer_paired_matmul(operands, attrs)
    axes = axes_over(out.shape)
    return _definition(
        operands, axes[:-1], lambda k: (*(axis.sym for axis in axes[:-1]), k), axes[-1], axes, x.shape[-1]
    )


def infer_paired_conv(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, first, rest = present(operands[0]), present(operands[1]), present(operands[4])
    _check_parts(x.shape[1], first, rest)
    strides = ints_attr(attrs, "strides")
    spatial = (-(-extent // stride) for extent, stride in zip(x.shape[2:], strides, strict=True))
    return (TensorType(x.dtype, (x.shape[0], first.shape[-1], *spatial)),)


def define_paired_conv(operands: Operands, attrs: Attrs) -> Definition:
    """x[n, k, s...], one tap."""
    x, (out,) = present(operands[0]), infer_paired_conv(operands, attrs)
    strides = ints_attr(attrs, "strides")
    n, j, *space = axes_over(out.shape)

    def place(k: Dim) -> tuple[Dim, ...]:
        return (n.sym, k, *(axis.sym * stride for axis, stride in zip(space, strides, strict=True)))

    return _definition(operands, (n, *space), place, j, (n, j, *space), x.shape[1])


def _check_parts(length: Dim, first: TensorType, rest: TensorType) -> None:
    if length != 3 * first.shape[-3] * first.shape[-2] + rest.shape[-2]:
        raise ValueError(f"parts of {first} and {rest} do not make up sums over {length}")


def _definition(
    operands: Operands,
    rows: Sequence[Axis],
    place: Callable[[Dim], tuple[Dim, ...]],
    column: Axis,
    axes: tuple[Axis, ...],
    length: Dim,
) -> Definition:
    x, first, rest = present(operands[0]), present(operands[1]), present(operands[4])
    dtype, (groups, apart) = x.dtype.compute, first.shape[-3:-1]
    assert isinstance(groups, int) and isinstance(apart, int) and isinstance(rest.shape[-2], int)
    row = tuple(axis.sym for axis in rows)
    k, g, t = axis_over(length, "k"), axis_over(groups, "g"), axis_over(apart, "t")

    def data(at: Dim) -> Load:
        return Load(Operand(0), place(at), x.dtype)

    def part(name: str, *at: Dim) -> Load:
        number = 1 + PARTS.index(name)
        type = present(operands[number])
        batch = TensorType(type.dtype, type.shape[: -1 - len(at)])
        lead = load_broadcast(Operand(number), batch, tuple(rows[:-1])).indices
        return Load(Operand(number), (*lead, *at, column.sym), type.dtype)

    def scaled(at: Dim) -> Load:
        return Load(Local(1), (*row, at), dtype)

    size = Apply("add", (Load(Local(0), row, dtype), Const(LEAST_SIZE, dtype)))
    factor = Apply("reciprocal", (size,))
    one, two, three = (scaled(g.sym * (3 * apart) + number * apart + t.sym) for number in range(3))
    first, second, third = (part(name, g.sym, t.sym) for name in PARTS[:3])
    pair = Apply("mul", (Apply("add", (one, second)), Apply("add", (two, first))))
    total: Scalar = Load(Local(3), tuple(axis.sym for axis in axes), dtype)
    for each in range(rest.shape[-2]):
        total = Apply("add", (total, Apply("mul", (scaled(3 * groups * apart + each), part("rest", each)))))
    total = Apply("sub", (Apply("sub", (total, Load(Local(2), row, dtype))), part("shift", 0)))
    result: Scalar = Apply("mul", (Apply("mul", (total, size)), part("scale", 0)))
    if len(operands) > 7 and operands[7] is not None:
        result = Apply("add", (result, part("bias", 0)))
    z = Apply("mul", (data(k.sym), factor))
    return Definition(
        (
            Stage("size", dtype, tuple(rows), Apply("abs", (data(k.sym),)), "sum", (k,)),
            Stage("scaled", dtype, (*rows, k), z),
            Stage("pairs", dtype, tuple(rows), Apply("mul", (one, two)), "sum", (g, t)),
            Stage("sum", dtype, axes, Apply("add", (pair, Apply("mul", (three, third)))), "sum", (g, t)),
            Stage("y", x.dtype, axes, result),
        ),
        (4,),
    )


PAIRED: dict[str, OpDef] = {
    "PairedMatMul": OpDef("PairedMatMul", infer_paired_matmul, define_paired_matmul),
    "PairedConv": OpDef("PairedConv", infer_paired_conv, define_paired_conv),
}
