"""Reductions over axes: sum, mean, product, maximum, minimum, and where the extreme is."""

from __future__ import annotations

from foretell.graph.ops.attrs import int_attr, ints_attr
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir import expr
from foretell.ir.dtypes import I64
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Cast,
    Const,
    Definition,
    Index,
    Load,
    Local,
    Operand,
    Scalar,
    Select,
    Stage,
    TensorType,
    axes_over,
    axis_over,
)


def reduced_shape(shape: tuple[Dim, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[Dim, ...]:
    if keepdims:
        return tuple(1 if number in axes else dim for number, dim in enumerate(shape))
    return tuple(dim for number, dim in enumerate(shape) if number not in axes)


def reduction_axes(
    shape: tuple[Dim, ...], axes: tuple[int, ...], keepdims: bool
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Dim, ...]]:
    """(axes of the result, axes summed over, the index of the operand at their point)."""
    outer = axes_over(reduced_shape(shape, axes, keepdims))
    inner = tuple(axis_over(shape[number], f"r{number}") for number in axes)
    kept = iter(outer)
    index: list[Dim] = []
    for number in range(len(shape)):
        if number in axes:
            index.append(inner[axes.index(number)].sym)
            if keepdims:
                next(kept)
        else:
            index.append(next(kept).sym)
    return outer, inner, tuple(index)


def _reduce(name: str, kind: str) -> OpDef:
    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
        x, axes = present(operands[0]), ints_attr(attrs, "axes")
        return (TensorType(x.dtype, reduced_shape(x.shape, axes, bool(attrs["keepdims"]))),)

    def define(operands: Operands, attrs: Attrs) -> Definition:
        x, axes = present(operands[0]), ints_attr(attrs, "axes")
        outer, inner, index = reduction_axes(x.shape, axes, bool(attrs["keepdims"]))
        load = Load(Operand(0), index, x.dtype)
        if name != "ReduceMean":
            return Definition((Stage("y", x.dtype, outer, load, kind, inner),), (0,))
        total = Stage("sum", x.dtype.compute, outer, load, kind, inner)
        count = Cast(Index(expr.product(tuple(axis.extent for axis in inner))), x.dtype.compute)
        point = Load(Local(0), tuple(axis.sym for axis in outer), x.dtype.compute)
        return Definition((total, Stage("y", x.dtype, outer, Apply("div", (point, count)))), (1,))

    return OpDef(name, infer, define)


def _arg_extreme(name: str, kind: str) -> OpDef:
    """ArgMax and ArgMin: the first (or last) index at which the extreme stands."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
        x, axis = present(operands[0]), int_attr(attrs, "axis")
        if x.shape[axis] == 0:
            raise ValueError(f"no extreme of {x} along its empty axis {axis}")
        return (TensorType(I64, reduced_shape(x.shape, (axis,), bool(attrs["keepdims"]))),)

    def define(operands: Operands, attrs: Attrs) -> Definition:
        x, axis, last = present(operands[0]), int_attr(attrs, "axis"), bool(attrs["select_last_index"])
        outer, inner, index = reduction_axes(x.shape, (axis,), bool(attrs["keepdims"]))
        load = Load(Operand(0), index, x.dtype)
        extreme = Stage("extreme", x.dtype, outer, load, kind, inner)
        here: Scalar = Apply("eq", (load, Load(Local(0), tuple(a.sym for a in outer), x.dtype)))
        if x.dtype.is_float:
            here = Apply("or", (here, Apply("isnan", (load,))))  # a NaN is the extreme, and equals nothing
        never = Const(-1, I64) if last else Index(x.shape[axis])
        body = Select(here, Index(inner[0].sym), never)
        return Definition((extreme, Stage("y", I64, outer, body, "max" if last else "min", inner)), (1,))

    return OpDef(name, infer, define)


REDUCTION: dict[str, OpDef] = {
    "ReduceSum": _reduce("ReduceSum", "sum"),
    "ReduceMean": _reduce("ReduceMean", "sum"),
    "ReduceProd": _reduce("ReduceProd", "prod"),
    "ReduceMax": _reduce("ReduceMax", "max"),
    "ReduceMin": _reduce("ReduceMin", "min"),
    "ArgMax": _arg_extreme("ArgMax", "max"),
    "ArgMin": _arg_extreme("ArgMin", "min"),
}
