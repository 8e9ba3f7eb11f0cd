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

from dataclasses import dataclass, replace

from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.ops.contraction import infer_conv, padded
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


@dataclass(frozen=True, slots=True)
class _Row:
    """The elements that a sum goes through, as they are stored, and those of them that are taken together."""

    axes: tuple[Axis, ...]
    element: Load
    """The one at a point of these axes."""
    sums: tuple[Axis, ...]
    """Axes of groups and of triples in them; g and t, as parts of weights have them, follow from these."""
    g: Dim
    t: Dim
    triple: tuple[tuple[Dim, ...], ...]
    """Points of the axes of the first, second and third of a triple."""
    rest: tuple[tuple[Dim, ...], ...] = ()
    """Points of those that belong to no triple."""


def infer_paired_matmul(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, first = present(operands[0]), present(operands[1])
    return (TensorType(x.dtype, (*x.shape[:-1], first.shape[-1])),)


def define_paired_matmul(operands: Operands, attrs: Attrs) -> Definition:
    """x[batch..., i, k]: parts may have the same batch."""
    x, (out,) = present(operands[0]), infer_paired_matmul(operands, attrs)
    axes, k = axes_over(out.shape), axis_over(x.shape[-1], "k")
    element = Load(Operand(0), (*(axis.sym for axis in axes[:-1]), k.sym), x.dtype)
    return _definition(operands, (), axes[:-1], axes[-1], axes, _in_thirds(operands, k, element))


def infer_paired_conv(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, first = present(operands[0]), present(operands[1])
    filters = TensorType(x.dtype, (first.shape[-1], x.shape[1], *ints_attr(attrs, "kernel")))
    return infer_conv((x, filters), {**attrs, "group": 1})


def define_paired_conv(operands: Operands, attrs: Attrs) -> Definition:
    """x[n, c, s...]: with one tap, k is c; else those of a triple are the three taps along axis `thirds`, u of them.

    z[n, s..., others..., g, u, t] = x[n, g*T + t, s*stride + tap*dilation ...] / size[n, s...]
    """
    x, (out,) = present(operands[0]), infer_paired_conv(operands, attrs)
    n, j, *space = axes_over(out.shape)
    taps = axes_over(ints_attr(attrs, "kernel"), "u")
    stages, source = padded(x, dims_attr(attrs, "before"), dims_attr(attrs, "after"))
    strides, dilations = ints_attr(attrs, "strides"), ints_attr(attrs, "dilations")
    place = tuple(
        s.sym * stride + (0 if tap.extent == 1 else tap.sym * dilation)
        for s, tap, stride, dilation in zip(space, taps, strides, dilations, strict=True)
    )
    if all(tap.extent == 1 for tap in taps):
        k = axis_over(x.shape[1], "k")
        row = _in_thirds(operands, k, Load(source, (n.sym, k.sym, *place), x.dtype))
    else:
        row = _by_taps(operands, taps, taps[int_attr(attrs, "thirds")], Load(source, (n.sym, 0, *place), x.dtype))
    return _definition(operands, stages, (n, *space), j, (n, j, *space), row)


def _by_taps(operands: Operands, taps: tuple[Axis, ...], thirds: Axis, element: Load) -> _Row:
    """Rows stored part by part of the channels: g goes through the other taps and through these parts."""
    channels, apart = present(operands[0]).shape[1], present(operands[1]).shape[-2]
    part, t = axis_over(channels // apart, "g"), axis_over(apart, "t")
    outer = (*(tap for tap in taps if tap.extent != 1 and tap is not thirds), part)
    g: Dim = 0
    for axis in outer:
        g = g * axis.extent + axis.sym
    n, _, *place = element.indices
    element = replace(element, indices=(n, part.sym * apart + t.sym, *place))
    lead = tuple(axis.sym for axis in outer)
    triple = tuple((*lead, number, t.sym) for number in range(3))
    return _Row((*outer, thirds, t), element, (*outer, t), g, t.sym, triple)


def _in_thirds(operands: Operands, k: Axis, element: Load) -> _Row:
    """Rows stored as they are: k = (3 * g + n) * T + t, and some are left over."""
    (groups, apart), rest = present(operands[1]).shape[-3:-1], present(operands[4]).shape[-2]
    assert isinstance(groups, int) and isinstance(apart, int) and isinstance(rest, int)
    if k.extent != 3 * groups * apart + rest:
        raise ValueError(f"{groups} groups of {apart} triples, and {rest}, do not make up sums over {k.extent}")
    g, t = axis_over(groups, "g"), axis_over(apart, "t")
    triple = tuple((g.sym * (3 * apart) + number * apart + t.sym,) for number in range(3))
    left = tuple((3 * groups * apart + each,) for each in range(rest))
    return _Row((k,), element, (g, t), g.sym, t.sym, triple, left)


def _definition(
    operands: Operands,
    before: tuple[Stage, ...],
    rows: tuple[Axis, ...],
    column: Axis,
    axes: tuple[Axis, ...],
    row: _Row,
) -> Definition:
    x, dtype = present(operands[0]), present(operands[0]).dtype.compute
    number, here = len(before), tuple(axis.sym for axis in rows)

    def part(name: str, *at: Dim) -> Load:
        number = 1 + PARTS.index(name)
        type = present(operands[number])
        batch = TensorType(type.dtype, type.shape[: -1 - len(at)])
        lead = load_broadcast(Operand(number), batch, rows[:-1]).indices
        return Load(Operand(number), (*lead, *at, column.sym), type.dtype)

    def scaled(at: tuple[Dim, ...]) -> Load:
        return Load(Local(number + 1), (*here, *at), dtype)

    size = Apply("add", (Load(Local(number), here, dtype), Const(LEAST_SIZE, dtype)))
    one, two, three = map(scaled, row.triple)
    first, second, third = (part(name, row.g, row.t) for name in PARTS[:3])
    pair = Apply("mul", (Apply("add", (one, second)), Apply("add", (two, first))))
    total: Scalar = Load(Local(number + 3), tuple(axis.sym for axis in axes), dtype)
    for each, at in enumerate(row.rest):
        total = Apply("add", (total, Apply("mul", (scaled(at), part("rest", each)))))
    total = Apply("sub", (Apply("sub", (total, Load(Local(number + 2), here, dtype))), part("shift", 0)))
    result: Scalar = Apply("mul", (Apply("mul", (total, size)), part("scale", 0)))
    if len(operands) > 7 and operands[7] is not None:
        result = Apply("add", (result, part("bias", 0)))
    z = Apply("mul", (row.element, Apply("reciprocal", (size,))))
    return Definition(
        (
            *before,
            Stage("size", dtype, rows, Apply("abs", (row.element,)), "sum", row.axes),
            Stage("scaled", dtype, (*rows, *row.axes), z),
            Stage("pairs", dtype, rows, Apply("mul", (one, two)), "sum", row.sums),
            Stage("sum", dtype, axes, Apply("add", (pair, Apply("mul", (three, third)))), "sum", row.sums),
            Stage("y", x.dtype, axes, result),
        ),
        (number + 4,),
    )


PAIRED: dict[str, OpDef] = {
    "PairedMatMul": OpDef("PairedMatMul", infer_paired_matmul, define_paired_matmul),
    "PairedConv": OpDef("PairedConv", infer_paired_conv, define_paired_conv),
}
