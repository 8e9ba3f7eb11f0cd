"""Operators that look at a whole row before they write an element: softmax, the norms, and attention.

Everything between the input and the last stage is kept in the compute type, so narrow floats round once.
"""

from __future__ import annotations

from foretell.graph.ops.attrs import float_attr, int_attr
from foretell.graph.ops.elementwise import constant_like, load_broadcast
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.graph.ops.reduction import reduction_axes
from foretell.ir import expr
from foretell.ir.dtypes import BOOL, DType
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
    dtype_of,
)


def _apply(op: str, *arguments: Scalar) -> Scalar:
    return Apply(op, arguments)


def _as(value: Scalar, dtype: DType) -> Scalar:
    """The value in a given compute type; parameters of a norm may be stored wider or narrower than its data."""
    return value if dtype_of(value) == dtype else Cast(value, dtype)


def _optional(operands: Operands, index: int) -> TensorType | None:
    return operands[index] if index < len(operands) else None


def _syms(axes: tuple[Axis, ...]) -> tuple[Dim, ...]:
    return tuple(axis.sym for axis in axes)


def _same_type(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    """The result is like operand 0; every other operand must broadcast to it."""
    x = present(operands[0])
    for operand in operands[1:]:
        _check_broadcasts(operand, x.shape)
    return (x,)


def _check_broadcasts(operand: TensorType | None, shape: tuple[Dim, ...]) -> None:
    if operand is None:
        return
    own = shape[max(0, len(shape) - operand.rank) :]
    if operand.rank > len(shape) or any(
        isinstance(a, int) and isinstance(b, int) and a not in (1, b) for a, b in zip(operand.shape, own, strict=True)
    ):
        raise ValueError(f"{operand} does not broadcast to shape {shape}")


# --- Softmax{axis}: y = e * (1 / sum[axis] e), e = exp(x - max[axis] x);  LogSoftmax: y = (x - max) - log sum e ----


def _infer_softmax(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, axis = present(operands[0]), int_attr(attrs, "axis")
    if not 0 <= axis < x.rank:
        raise ValueError(f"{x} has no axis {axis}")
    return (x,)


def _max_stage(x: TensorType, axis: int) -> Stage:
    outer, inner, index = reduction_axes(x.shape, (axis,), keepdims=False)
    return Stage("max", x.dtype.compute, outer, Load(Operand(0), index, x.dtype), "max", inner)


def define_softmax(operands: Operands, attrs: Attrs) -> Definition:
    x, axis = present(operands[0]), int_attr(attrs, "axis")
    axes, compute = axes_over(x.shape), x.dtype.compute
    here, row = _syms(axes), _syms(axes[:axis] + axes[axis + 1 :])
    shifted = _apply("sub", Load(Operand(0), here, x.dtype), Load(Local(0), row, compute))
    outer, inner, index = reduction_axes(x.shape, (axis,), keepdims=False)
    stages = (
        _max_stage(x, axis),
        Stage("exp", compute, axes, _apply("exp", shifted)),
        Stage("sum", compute, outer, Load(Local(1), index, compute), "sum", inner),
        Stage("inverse", compute, outer, _apply("reciprocal", Load(Local(2), _syms(outer), compute))),
        Stage("y", x.dtype, axes, _apply("mul", Load(Local(1), here, compute), Load(Local(3), row, compute))),
    )
    return Definition(stages, (4,))


def define_log_softmax(operands: Operands, attrs: Attrs) -> Definition:
    x, axis = present(operands[0]), int_attr(attrs, "axis")
    axes, compute = axes_over(x.shape), x.dtype.compute
    here, row = _syms(axes), _syms(axes[:axis] + axes[axis + 1 :])
    outer, inner, index = reduction_axes(x.shape, (axis,), keepdims=False)

    def shifted(point: tuple[Dim, ...], line: tuple[Dim, ...]) -> Scalar:
        return _apply("sub", Load(Operand(0), point, x.dtype), Load(Local(0), line, compute))

    stages = (
        _max_stage(x, axis),
        Stage("sum", compute, outer, _apply("exp", shifted(index, _syms(outer))), "sum", inner),
        Stage("y", x.dtype, axes, _apply("sub", shifted(here, row), _apply("log", Load(Local(1), row, compute)))),
    )
    return Definition(stages, (2,))


# --- LayerNorm(x, scale?, bias?){axis, epsilon}: (x - mean) / sqrt(variance + epsilon) * scale + bias ------------
# --- RMSNorm(x, scale?){axis, epsilon}: x / sqrt(mean of squares + epsilon) * scale ------------------------------


def _infer_norm(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, axis = present(operands[0]), int_attr(attrs, "axis")
    if not 0 <= axis < x.rank:
        raise ValueError(f"{x} has no axis {axis}")
    return _same_type(operands, attrs)


def _inverse_stage(squares: Stage, local: int, epsilon: float) -> Stage:
    """1 / sqrt(squares / count + epsilon), where `squares` filled the local of that number."""
    count = Cast(Index(expr.product(tuple(axis.extent for axis in squares.reduction_axes))), squares.dtype)
    total = Load(Local(local), _syms(squares.axes), squares.dtype)
    variance = _apply("add", _apply("div", total, count), Const(epsilon, squares.dtype))
    return Stage("inverse", squares.dtype, squares.axes, _apply("reciprocal", _apply("sqrt", variance)))


def _scaled_and_shifted(value: Scalar, operands: Operands, axes: tuple[Axis, ...]) -> Scalar:
    """value * operand 1 + operand 2, as far as they are there."""
    for number, op in ((1, "mul"), (2, "add")):
        operand = _optional(operands, number)
        if operand is not None:
            value = _apply(op, value, _as(load_broadcast(Operand(number), operand, axes), dtype_of(value)))
    return value


def define_layer_norm(operands: Operands, attrs: Attrs) -> Definition:
    x, first = present(operands[0]), int_attr(attrs, "axis")
    compute, axes = x.dtype.compute, axes_over(x.shape)
    outer, inner, index = reduction_axes(x.shape, tuple(range(first, x.rank)), keepdims=False)
    here, row = _syms(axes), _syms(axes[:first])

    def centred(point: tuple[Dim, ...], line: tuple[Dim, ...]) -> Scalar:
        return _apply("sub", Load(Operand(0), point, x.dtype), Load(Local(1), line, compute))

    deviation = centred(index, _syms(outer))
    total = Stage("sum", compute, outer, Load(Operand(0), index, x.dtype), "sum", inner)
    count = Cast(Index(expr.product(tuple(axis.extent for axis in inner))), compute)
    mean = Stage("mean", compute, outer, _apply("div", Load(Local(0), _syms(outer), compute), count))
    squares = Stage("squares", compute, outer, _apply("mul", deviation, deviation), "sum", inner)
    inverse = _inverse_stage(squares, 2, float_attr(attrs, "epsilon"))
    normal = _apply("mul", centred(here, row), Load(Local(3), row, compute))
    result = Stage("y", x.dtype, axes, _scaled_and_shifted(normal, operands, axes))
    return Definition((total, mean, squares, inverse, result), (4,))


def define_rms_norm(operands: Operands, attrs: Attrs) -> Definition:
    x, first = present(operands[0]), int_attr(attrs, "axis")
    compute, axes = x.dtype.compute, axes_over(x.shape)
    outer, inner, index = reduction_axes(x.shape, tuple(range(first, x.rank)), keepdims=False)
    load = Load(Operand(0), index, x.dtype)
    squares = Stage("squares", compute, outer, _apply("mul", load, load), "sum", inner)
    inverse = _inverse_stage(squares, 0, float_attr(attrs, "epsilon"))
    normal = _apply("mul", Load(Operand(0), _syms(axes), x.dtype), Load(Local(1), _syms(axes[:first]), compute))
    result = Stage("y", x.dtype, axes, _scaled_and_shifted(normal, operands, axes))
    return Definition((squares, inverse, result), (2,))


# --- BatchNorm(x, scale, bias, mean, variance){epsilon}: per channel, which is axis 1 ----------------------------


def infer_batch_norm(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x = present(operands[0])
    if x.rank < 2:
        raise ValueError(f"BatchNorm needs a channel axis, {x} has none")
    for operand in operands[1:]:
        _check_broadcasts(present(operand), (x.shape[1],))
    return (x,)


def define_batch_norm(operands: Operands, attrs: Attrs) -> Definition:
    """y = (x - mean) * (scale / sqrt(variance + epsilon)) + bias"""
    x = present(operands[0])
    compute, axes = x.dtype.compute, axes_over(x.shape)

    def parameter(number: int) -> Scalar:
        return _as(load_broadcast(Operand(number), present(operands[number]), axes[1:2]), compute)

    deviation = _apply("sqrt", _apply("add", parameter(4), Const(float_attr(attrs, "epsilon"), compute)))
    centred = _apply("sub", Load(Operand(0), _syms(axes), x.dtype), parameter(3))
    body = _apply("add", _apply("mul", centred, _apply("div", parameter(1), deviation)), parameter(2))
    return Definition((Stage("y", x.dtype, axes, body),), (0,))


# --- Attention(q, k, v, mask?){scale, causal, softcap, fill?, nan_to_zero?} --------------------------------------
#
# q [B..., Lq, D], k [B..., Lk, D], v [B..., Lk, Dv]; batch dimensions of k and v are those of q, or 1.
#     score = scale * q k^T;  score = softcap * tanh(score / softcap) unless softcap is 0
#     score = score + mask; or, for a mask of booleans, score where it is true and `fill` (default -inf) elsewhere
#     score = -inf where causal and key > query (both counted from the start)
#     y = softmax(score) v; with nan_to_zero the NaN probabilities of a row that sees nothing become 0


def infer_attention(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    q, k, v = present(operands[0]), present(operands[1]), present(operands[2])
    if not 2 <= q.rank == k.rank == v.rank:
        raise ValueError(f"attention needs queries, keys and values of one rank, at least 2; got {q}, {k}, {v}")
    _check_broadcasts(TensorType(k.dtype, k.shape[:-2]), q.shape[:-2])
    _check_broadcasts(TensorType(v.dtype, v.shape[:-2]), q.shape[:-2])
    for left, right in ((q.shape[-1], k.shape[-1]), (k.shape[-2], v.shape[-2])):
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise ValueError(f"queries {q}, keys {k} and values {v} do not fit together")
    _check_broadcasts(_optional(operands, 3), (*q.shape[:-1], k.shape[-2]))
    return (TensorType(q.dtype, (*q.shape[:-1], v.shape[-1])),)


def define_attention(operands: Operands, attrs: Attrs) -> Definition:
    q, k, v = present(operands[0]), present(operands[1]), present(operands[2])
    compute, (out,) = q.dtype.compute, infer_attention(operands, attrs)
    axes = axes_over((*q.shape[:-1], k.shape[-2]))
    rows, here, row = axes[:-1], _syms(axes), _syms(axes[:-1])
    guarded = bool(attrs.get("nan_to_zero", False))

    depth = axis_over(q.shape[-1], "d")
    dot = _apply("mul", Load(Operand(0), (*row, depth.sym), q.dtype), _batched(1, k, axes, axes[-1].sym, depth.sym))
    score = Stage("score", compute, axes, dot, "sum", (depth,))
    masked = Stage("masked", compute, axes, _masked_score(Load(Local(0), here, compute), operands, attrs, axes))

    key = axis_over(k.shape[-2], "j")
    highest = Stage("max", compute, rows, Load(Local(1), (*row, key.sym), compute), "max", (key,))
    weight = _apply("exp", _apply("sub", Load(Local(1), here, compute), Load(Local(2), row, compute)))
    zero = Const(0.0, compute)
    weight = Select(_apply("isnan", weight), zero, weight) if guarded else weight
    weights = Stage("exp", compute, axes, weight)
    total = Stage("sum", compute, rows, Load(Local(3), (*row, key.sym), compute), "sum", (key,))

    columns = (*rows, axis_over(v.shape[-1], "c"))
    value = _batched(2, v, axes, key.sym, columns[-1].sym)
    weighted = Stage(
        "weighted", compute, columns, _apply("mul", Load(Local(3), (*row, key.sym), compute), value), "sum", (key,)
    )
    # A guarded row sums to 0 only if all of it was NaN; its weighted sum stays as it is.
    divisor: Scalar = Load(Local(4), row, compute)
    divisor = Select(_apply("eq", divisor, zero), Const(1.0, compute), divisor) if guarded else divisor
    result = Stage("y", out.dtype, columns, _apply("div", Load(Local(5), _syms(columns), compute), divisor))
    return Definition((score, masked, highest, weights, total, weighted, result), (6,))


def _batched(number: int, operand: TensorType, axes: tuple[Axis, ...], *last: Dim) -> Load:
    """Operand `number` at the batch point of `axes` and the given last two indices."""
    batch = load_broadcast(Operand(number), TensorType(operand.dtype, operand.shape[:-2]), axes[:-2])
    return Load(Operand(number), (*batch.indices, *last), operand.dtype)


def _masked_score(score: Scalar, operands: Operands, attrs: Attrs, axes: tuple[Axis, ...]) -> Scalar:
    """The score scaled, capped, masked and cut off above the diagonal."""
    score = _apply("mul", score, constant_like(float_attr(attrs, "scale"), score))
    if attrs.get("softcap"):
        cap = constant_like(float_attr(attrs, "softcap"), score)
        score = _apply("mul", cap, _apply("tanh", _apply("div", score, cap)))
    mask, never = _optional(operands, 3), constant_like(float("-inf"), score)
    if mask is not None:
        load = load_broadcast(Operand(3), mask, axes)
        if mask.dtype == BOOL:
            fill = constant_like(float_attr(attrs, "fill"), score) if "fill" in attrs else never
            score = Select(load, score, fill)
        else:
            score = _apply("add", score, _as(load, dtype_of(score)))
    if attrs.get("causal", False):
        score = Select(_apply("le", Index(axes[-1].sym), Index(axes[-2].sym)), score, never)
    return score


NORMALISATION: dict[str, OpDef] = {
    "Softmax": OpDef("Softmax", _infer_softmax, define_softmax),
    "LogSoftmax": OpDef("LogSoftmax", _infer_softmax, define_log_softmax),
    "LayerNorm": OpDef("LayerNorm", _infer_norm, define_layer_norm),
    "RMSNorm": OpDef("RMSNorm", _infer_norm, define_rms_norm),
    "BatchNorm": OpDef("BatchNorm", infer_batch_norm, define_batch_norm),
    "Attention": OpDef("Attention", infer_attention, define_attention),
}
