"""Operators whose data says where an element goes: scatters and top-k.

A definition computes each element of a result from operands, so it says which update an element receives rather than
where an update goes: every element looks at every update that could reach it. That is the meaning, and good code for
few updates; front ends keep larger ones away.
"""

from __future__ import annotations

from collections.abc import Callable

from foretell.graph.ops.attrs import int_attr, text_attr
from foretell.graph.ops.movement import wrapped_index
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.graph.ops.quantise import integer_range
from foretell.ir.dtypes import BOOL, I64, DType
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
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

REDUCTIONS: dict[str, tuple[str, str]] = {
    "add": ("sum", "add"),
    "mul": ("prod", "mul"),
    "max": ("max", "max"),
    "min": ("min", "min"),
}
"""How several updates of one element combine, and how they combine with the element itself."""


def _identity(reduction: str, dtype: DType) -> Const:
    if reduction in ("add", "mul"):
        number = 0 if reduction == "add" else 1
        return Const(float(number) if dtype.is_float else number, dtype)
    if dtype.is_float:
        return Const(float("-inf") if reduction == "max" else float("inf"), dtype)
    low, high = integer_range(dtype)
    return Const(low if reduction == "max" else high, dtype)


def _scattered(
    data: TensorType, attrs: Attrs, k: Axis, hit: Scalar, reached: int, update: Callable[[Dim | Scalar], Load]
) -> Definition:
    """Data with updates applied: `hit` says whether update k reaches a point, `update(k)` is its value there.

    `reached` counts the leading axes that `hit` depends on. Without a reduction the last update wins.
    """
    axes, reduction = axes_over(data.shape), text_attr(attrs, "reduction")
    here = tuple(axis.sym for axis in axes)
    element = Load(Operand(0), here, data.dtype)
    if reduction == "none":
        last = Stage("last", I64, axes[:reached], Select(hit, Index(k.sym), Const(-1, I64)), "max", (k,))
        winner = Load(Local(0), here[:reached], I64)
        body = Select(Apply("ge", (winner, Const(0, I64))), update(winner), element)
        return Definition((last, Stage("y", data.dtype, axes, body)), (1,))
    kind, combine = REDUCTIONS[reduction]
    compute = data.dtype.compute
    total = Stage("total", compute, axes, Select(hit, update(k.sym), _identity(reduction, compute)), kind, (k,))
    body = Apply(combine, (element, Load(Local(0), here, compute)))
    return Definition((total, Stage("y", data.dtype, axes, body)), (1,))


def _check_reduction(attrs: Attrs) -> None:
    if text_attr(attrs, "reduction") not in ("none", *REDUCTIONS):
        raise ValueError(f"unknown reduction {attrs['reduction']!r}")


# --- ScatterElements(data, indices, updates){axis, reduction}: y[..., indices[i...], ...] = updates[i...] --------


def infer_scatter_elements(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    data, indices, updates = (present(operand) for operand in operands)
    _check_reduction(attrs)
    if not data.rank == indices.rank == updates.rank or not 0 <= int_attr(attrs, "axis") < data.rank:
        raise ValueError(f"cannot scatter {updates} into {data} along axis {attrs['axis']} by {indices}")
    for number, (whole, part, given) in enumerate(zip(data.shape, indices.shape, updates.shape, strict=True)):
        if isinstance(part, int) and isinstance(given, int) and part != given:
            raise ValueError(f"indices {indices} and updates {updates} differ in shape")
        if isinstance(part, int) and isinstance(whole, int) and number != attrs["axis"] and part > whole:
            raise ValueError(f"indices {indices} reach beyond {data}")
    return (data,)


def define_scatter_elements(operands: Operands, attrs: Attrs) -> Definition:
    data, indices, updates = (present(operand) for operand in operands)
    axis = int_attr(attrs, "axis")
    here = tuple(a.sym for a in axes_over(data.shape))
    k = axis_over(indices.shape[axis], "k")
    place = (*here[:axis], k.sym, *here[axis + 1 :])
    chosen = wrapped_index(Load(Operand(1), place, indices.dtype), data.shape[axis])
    hit: Scalar = Apply("eq", (chosen, Index(here[axis])))
    for number, (sym, whole, part) in enumerate(zip(here, data.shape, indices.shape, strict=True)):
        if number != axis and whole != part:
            hit = Select(Apply("lt", (Index(sym), Index(part))), hit, Const(False, BOOL))

    def update(number: Dim | Scalar) -> Load:
        return Load(Operand(2), (*here[:axis], number, *here[axis + 1 :]), updates.dtype)

    return _scattered(data, attrs, k, hit, data.rank, update)


# --- ScatterND(data, indices[k, depth], updates[k, ...]){reduction}: y[indices[k, :]] = updates[k] ---------------


def infer_scatter_nd(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    data, indices, updates = (present(operand) for operand in operands)
    _check_reduction(attrs)
    depth = indices.shape[-1]
    if indices.rank != 2 or not isinstance(depth, int) or depth > data.rank:
        raise ValueError(f"indices {indices} do not fit {data}")
    expected = (indices.shape[0], *data.shape[depth:])
    if len(expected) != updates.rank or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(expected, updates.shape, strict=True)
    ):
        raise ValueError(f"updates {updates} do not fit indices {indices} into {data}")
    return (data,)


def define_scatter_nd(operands: Operands, attrs: Attrs) -> Definition:
    data, indices, updates = (present(operand) for operand in operands)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    here = tuple(a.sym for a in axes_over(data.shape))
    k = axis_over(indices.shape[0], "k")
    hit: Scalar = Const(True, BOOL)
    for number in range(depth):
        chosen = wrapped_index(Load(Operand(1), (k.sym, number), indices.dtype), data.shape[number])
        same = Apply("eq", (chosen, Index(here[number])))
        hit = same if number == 0 else Apply("and", (hit, same))

    def update(number: Dim | Scalar) -> Load:
        return Load(Operand(2), (number, *here[depth:]), updates.dtype)

    return _scattered(data, attrs, k, hit, depth, update)


# --- TopK(x){axis, k, largest}: values and indices, best first; of equals the first is better, NaN is the largest ---


def infer_top_k(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, axis, k = present(operands[0]), int_attr(attrs, "axis"), int_attr(attrs, "k")
    if not 0 <= axis < x.rank:
        raise ValueError(f"{x} has no axis {axis}")
    extent = x.shape[axis]
    if k < 0 or (isinstance(extent, int) and k > extent):
        raise ValueError(f"axis {axis} of {x} has no {k} elements to choose")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType(I64, shape)


def define_top_k(operands: Operands, attrs: Attrs) -> Definition:
    """rank[i] = how many j come before i;  indices[p] = the i whose rank is p;  values[p] = x[indices[p]]"""
    x, axis, largest = present(operands[0]), int_attr(attrs, "axis"), bool(attrs["largest"])
    (out, _) = infer_top_k(operands, attrs)
    axes, places = axes_over(x.shape), axes_over(out.shape)
    other = axis_over(x.shape[axis], "j")

    def at(axes: tuple[Axis, ...], index: Dim | Scalar) -> tuple[Dim | Scalar, ...]:
        syms = tuple(a.sym for a in axes)
        return (*syms[:axis], index, *syms[axis + 1 :])

    mine, theirs = (Load(Operand(0), at(axes, sym), x.dtype) for sym in (axes[axis].sym, other.sym))
    before = _comes_before(theirs, mine, other.sym, axes[axis].sym, largest)
    rank = Stage("rank", I64, axes, Select(before, Const(1, I64), Const(0, I64)), "sum", (other,))
    found = Apply("eq", (Load(Local(0), at(places, other.sym), I64), Index(places[axis].sym)))
    indices = Stage("indices", I64, places, Select(found, Index(other.sym), Const(0, I64)), "sum", (other,))
    chosen = Load(Local(1), at(places, places[axis].sym), I64)
    values = Stage("values", x.dtype, places, Load(Operand(0), at(places, chosen), x.dtype))
    return Definition((rank, indices, values), (2, 1))


def _comes_before(left: Load, right: Load, left_place: Sym, right_place: Sym, largest: bool) -> Scalar:
    """A total order, NaN included, so that ranks are a permutation."""
    better: Scalar = Apply("gt" if largest else "lt", (left, right))
    tie: Scalar = Apply("eq", (left, right))
    if left.dtype.is_float:
        left_nan, right_nan = Apply("isnan", (left,)), Apply("isnan", (right,))
        first, second = (left_nan, right_nan) if largest else (right_nan, left_nan)
        better = Apply("or", (better, Apply("and", (first, Apply("not", (second,))))))
        tie = Apply("or", (tie, Apply("and", (left_nan, right_nan))))
    return Apply("or", (better, Apply("and", (tie, Apply("lt", (Index(left_place), Index(right_place)))))))


PLACEMENT: dict[str, OpDef] = {
    "ScatterElements": OpDef("ScatterElements", infer_scatter_elements, define_scatter_elements),
    "ScatterND": OpDef("ScatterND", infer_scatter_nd, define_scatter_nd),
    "TopK": OpDef("TopK", infer_top_k, define_top_k),
}
