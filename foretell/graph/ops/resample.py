"""Resampling along one axis by tables: what every kind of resize is made of."""

from __future__ import annotations

from foretell.graph.ops.attrs import int_attr
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir.dtypes import I64
from foretell.ir.tensor_expr import Apply, Cast, Definition, Load, Operand, Stage, TensorType, axes_over, axis_over

# --- Resample(x, indices, weights){axis}: y[..., o, ...] = sum[t] x[..., indices[o, t], ...] * weights[o, t] ----


def infer_resample(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices, weights = present(operands[0]), present(operands[1]), present(operands[2])
    axis = int_attr(attrs, "axis")
    if not 0 <= axis < x.rank or indices.rank != 2 or indices.shape != weights.shape:
        raise ValueError(f"{x} has no axis {axis}, or the tables {indices} and {weights} differ")
    if weights.dtype.compute != x.dtype.compute:
        raise ValueError(f"{x} and the weights {weights} are not computed in one type")
    return (TensorType(x.dtype, (*x.shape[:axis], indices.shape[0], *x.shape[axis + 1 :])),)


def define_resample(operands: Operands, attrs: Attrs) -> Definition:
    x, indices, weights = present(operands[0]), present(operands[1]), present(operands[2])
    axis, (out,) = int_attr(attrs, "axis"), infer_resample(operands, attrs)
    axes, tap = axes_over(out.shape), axis_over(indices.shape[1], "t")
    entry = (axes[axis].sym, tap.sym)
    place = Cast(Load(Operand(1), entry, indices.dtype), I64)
    here = tuple(place if number == axis else a.sym for number, a in enumerate(axes))
    product = Apply("mul", (Load(Operand(0), here, x.dtype), Load(Operand(2), entry, weights.dtype)))
    return Definition((Stage("y", out.dtype, axes, product, "sum", (tap,)),), (0,))


RESAMPLE: dict[str, OpDef] = {"Resample": OpDef("Resample", infer_resample, define_resample)}
