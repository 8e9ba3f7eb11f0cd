"""Executable semantics of tensor expressions, vectorised over the iteration space with numpy.

Every load whose indices are affine in the axes becomes a strided view of its array, so a matmul or a convolution
is two views and one `np.matmul`; anything else is index arithmetic and a gather. Plain and exact before fast: this
is the oracle that compiled code is compared with, the engine of constant folding, and the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import erf, prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from foretell.graph.nodes import Array
from foretell.ir import expr
from foretell.ir.dtypes import BOOL, DType
from foretell.ir.expr import Dim, Op, Sym
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Buffer,
    Cast,
    Const,
    Definition,
    Index,
    Load,
    Operand,
    Scalar,
    Select,
    Source,
    Stage,
    dtype_of,
)

Numbers = npt.NDArray[Any]

CHUNK_POINTS = 1 << 22
"""Points of an iteration space held in memory at once."""


def interpret(definition: Definition, operands: Sequence[Array | None], symbols: Mapping[Sym, int]) -> list[Array]:
    """The outputs of a definition on concrete arrays, with every symbolic dimension bound by `symbols`."""
    results = [definition.stages[index] for index in definition.outputs]
    shapes = [tuple(evaluate_dim(axis.extent, symbols) for axis in stage.axes) for stage in results]
    if all(0 in shape for shape in shapes):
        # Stages in between may be huge although nothing comes of them: the softmax of [2**40, 0].
        return [np.empty(shape, stage.dtype.numpy) for shape, stage in zip(shapes, results, strict=True)]
    filled: list[Array] = []
    with np.errstate(all="ignore"):
        for stage in definition.stages:
            filled.append(_interpret_stage(stage, operands, filled, symbols))
    return [filled[index] for index in definition.outputs]


def evaluate_dim(value: Dim, symbols: Mapping[Sym, int]) -> int:
    """The number an expression stands for."""
    result = expr.substitute(value, dict(symbols))
    assert isinstance(result, int), f"{value} mentions symbols that are not bound"
    return result


@dataclass(frozen=True, slots=True)
class _Points:
    """A box of the iteration space: for each axis (in order) its first index and its length."""

    axes: tuple[Sym, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    symbols: Mapping[Sym, int]
    operands: Sequence[Array | None]
    filled: Sequence[Array]

    def array(self, source: Source) -> Array:
        assert not isinstance(source, Buffer), "a lowered load has no meaning here"
        array = self.operands[source.index] if isinstance(source, Operand) else self.filled[source.index]
        assert array is not None, f"{source} is absent"
        return array


def _interpret_stage(
    stage: Stage, operands: Sequence[Array | None], filled: Sequence[Array], symbols: Mapping[Sym, int]
) -> Array:
    all_axes: tuple[Axis, ...] = stage.axes + stage.reduction_axes
    lengths = tuple(evaluate_dim(axis.extent, symbols) for axis in all_axes)
    names = tuple(axis.sym for axis in all_axes)
    rank = len(stage.axes)
    result = np.empty(lengths[:rank], stage.dtype.numpy)
    if result.size == 0:
        return result
    contraction = _try_contraction(stage)
    points = _Points(names, (0,) * len(names), lengths, symbols, operands, filled)
    if contraction is not None and prod(lengths) > 0:
        value = _contract(contraction, points, rank)
        if value is not None:
            result[...] = convert(value, stage.dtype, saturate=False)
            return result
    for start, stop in _chunks(lengths, rank):
        part = (
            _Points(names, (start,) + (0,) * (len(names) - 1), (stop - start, *lengths[1:]), symbols, operands, filled)
            if names
            else points
        )
        value = _evaluate(stage.body, part)
        if stage.reduction is not None:
            value = _reduce(stage.reduction, value, part.lengths, rank, dtype_of(stage.body))
        target = result[start:stop] if rank else result
        target[...] = convert(value, stage.dtype, saturate=False)
    return result


def _chunks(lengths: tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    """Ranges of the first axis such that each box holds at most CHUNK_POINTS points, where one row allows it."""
    if rank == 0:
        return [(0, lengths[0] if lengths else 1)]
    row = max(1, prod(lengths[1:]))
    step = max(1, CHUNK_POINTS // row)
    return [(start, min(start + step, lengths[0])) for start in range(0, lengths[0], step)]


_IDENTITY: dict[str, Callable[[DType], Any]] = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "max": lambda dtype: lowest(dtype),
    "min": lambda dtype: highest(dtype),
}
_REDUCERS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def lowest(dtype: DType) -> bool | int | float:
    """The identity of max."""
    if dtype is BOOL:
        return False
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy.name).min)


def highest(dtype: DType) -> bool | int | float:
    """The identity of min."""
    if dtype is BOOL:
        return True
    return np.inf if dtype.is_float else int(np.iinfo(dtype.numpy.name).max)


def _reduce(kind: str, value: Numbers, lengths: tuple[int, ...], rank: int, dtype: DType) -> Numbers:
    axes = tuple(range(rank, len(lengths)))
    full = np.broadcast_to(value, lengths)
    if prod(lengths[rank:]) == 0:
        return np.full(lengths[:rank], _IDENTITY[kind](dtype), dtype.numpy)
    if kind in ("sum", "prod"):
        return _REDUCERS[kind].reduce(full, axis=axes, dtype=dtype.numpy)
    return _REDUCERS[kind].reduce(full, axis=axes)


# --- scalars -------------------------------------------------------------------------------------------------


def _evaluate(scalar: Scalar, points: _Points) -> Numbers:
    """The scalar at every point of the box, as an array that broadcasts to its lengths."""
    match scalar:
        case Const(value, dtype):
            return np.asarray(value, dtype.compute.numpy)
        case Index(value):
            return _evaluate_index(value, points)
        case Load():
            return _load(scalar, points)
        case Cast(value, dtype, saturate):
            # Rounded to the narrow type, then carried on in its compute type.
            return convert(_evaluate(value, points), dtype, saturate).astype(dtype.compute.numpy)
        case Select(condition, then, otherwise):
            return np.where(_evaluate(condition, points), _evaluate(then, points), _evaluate(otherwise, points))
        case Apply(op, arguments):
            return FUNCTIONS[op](*(_evaluate(argument, points) for argument in arguments))


def _evaluate_index(value: Dim, points: _Points) -> Numbers:
    if isinstance(value, int):
        return np.asarray(value, np.int64)
    total = np.asarray(0, np.int64)
    for monomial, coefficient in expr.terms_of(value):
        term = np.asarray(coefficient, np.int64)
        for atom in monomial:
            term = term * _evaluate_atom(atom, points)
        total = total + term
    return total


def _evaluate_atom(atom: Sym | Op, points: _Points) -> Numbers:
    if isinstance(atom, Op):
        left, right = _evaluate_index(atom.left, points), _evaluate_index(atom.right, points)
        return _INDEX_FUNCTIONS[atom.kind](left, right)
    if atom not in points.axes:
        return np.asarray(points.symbols[atom], np.int64)
    position = points.axes.index(atom)
    shape = [1] * len(points.axes)
    shape[position] = points.lengths[position]
    start = points.starts[position]
    return np.arange(start, start + points.lengths[position], dtype=np.int64).reshape(shape)


_INDEX_FUNCTIONS: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}


def _load(load: Load, points: _Points) -> Numbers:
    view = _try_view(load, points)
    if view is not None:
        return view.astype(load.dtype.compute.numpy, copy=False)
    array = points.array(load.source)
    if array.size == 0:
        # Only a branch that is not taken may load from nothing.
        return np.zeros((), load.dtype.compute.numpy)
    indices = tuple(
        np.clip(
            _evaluate_index(index, points) if isinstance(index, (int, expr.Expr)) else _evaluate(index, points),
            0,
            extent - 1,
        )
        for index, extent in zip(load.indices, array.shape, strict=True)
    )
    return np.asarray(array[indices]).astype(load.dtype.compute.numpy, copy=False)


def _try_view(load: Load, points: _Points) -> Array | None:
    """The load as a strided view over the box, if its indices are affine and stay inside the array."""
    array = points.array(load.source)
    variables = frozenset(points.axes)
    offsets: list[int] = []
    strides = [0] * len(points.axes)
    for dimension, index in enumerate(load.indices):
        if not isinstance(index, (int, expr.Expr)):
            return None
        linear = expr.try_linear(index, variables)
        if linear is None:
            return None
        coefficients, rest = linear
        first = last = evaluate_dim(rest, points.symbols)
        start = first
        for sym, coefficient in coefficients.items():
            position = points.axes.index(sym)
            begin = points.starts[position]
            end = begin + points.lengths[position] - 1
            start += coefficient * begin
            first += min(coefficient * begin, coefficient * end)
            last += max(coefficient * begin, coefficient * end)
            strides[position] += coefficient * array.strides[dimension]
        if first < 0 or last >= array.shape[dimension]:
            return None
        offsets.append(start)
    shape = [length if stride else 1 for length, stride in zip(points.lengths, strides, strict=True)]
    origin = array[tuple(slice(offset, None) for offset in offsets)] if offsets else array
    # Through plain integers of the same width: numpy cannot describe every ml-dtypes type to itself.
    raw = origin.view(f"u{array.itemsize}")
    return np.lib.stride_tricks.as_strided(raw, shape, strides, writeable=False).view(array.dtype)


# --- contractions --------------------------------------------------------------------------------------------


def _try_contraction(stage: Stage) -> tuple[Load, Load] | None:
    """The two loads of a sum of products."""
    match stage.body:
        case Apply("mul", (Load() as left, Load() as right)) if stage.reduction == "sum" and stage.reduction_axes:
            return left, right
        case _:
            return None


def _contract(loads: tuple[Load, Load], points: _Points, rank: int) -> Numbers | None:
    """Sum of products as one batched matrix product; None if a load is not affine.

    Each axis is a batch axis (both loads and the result have it), a row (left and result), a column (right and
    result), a shared reduction axis, or a reduction axis of one load alone, which is summed away first. Sums of
    float32 are rounded once, in the end, so that they are the same whatever library and CPU multiply.
    """
    views = [_try_view(load, points) for load in loads]
    left, right = views
    if left is None or right is None:
        return None
    compute = loads[0].dtype.compute.numpy
    wide = np.dtype(np.float64) if compute == np.float32 else compute
    left, right = left.astype(wide, copy=False), right.astype(wide, copy=False)
    count = len(points.axes)
    in_left = [left.shape[axis] > 1 for axis in range(count)]
    in_right = [right.shape[axis] > 1 for axis in range(count)]
    alone = [axis for axis in range(rank, count) if in_left[axis] != in_right[axis]]
    neither = [axis for axis in range(rank, count) if not in_left[axis] and not in_right[axis]]
    repeats = prod(points.lengths[axis] for axis in neither)
    left = left.sum(axis=tuple(a for a in alone if in_left[a]), keepdims=True, dtype=wide)
    right = right.sum(axis=tuple(a for a in alone if in_right[a]), keepdims=True, dtype=wide)
    batch = [axis for axis in range(rank) if in_left[axis] and in_right[axis]]
    rows = [axis for axis in range(rank) if in_left[axis] and not in_right[axis]]
    columns = [axis for axis in range(rank) if in_right[axis] and not in_left[axis]]
    shared = [axis for axis in range(rank, count) if in_left[axis] and in_right[axis]]
    lengths = points.lengths

    def matrix(view: Numbers, first: list[int], second: list[int]) -> Numbers:
        order = [*batch, *first, *second]
        rest = [axis for axis in range(count) if axis not in order]
        flat = view.transpose(order + rest)
        sizes = [prod(lengths[axis] for axis in group) for group in (batch, first, second)]
        return flat.reshape(sizes)

    product = matrix(left, rows, shared) @ matrix(right, shared, columns)
    order = [*batch, *rows, *columns]
    shaped = product.reshape([lengths[axis] for axis in order] + [1] * (rank - len(order)))
    missing = [axis for axis in range(rank) if axis not in order]
    positions = [*order, *missing]
    repeated = shaped.transpose(np.argsort(positions)) * np.asarray(repeats, product.dtype)
    return repeated.astype(compute, copy=False)


# --- primitive functions -------------------------------------------------------------------------------------


def convert(value: Numbers, dtype: DType, saturate: bool = True) -> Numbers:
    """Conversion to a storage type, as C does it; saturating where a narrow float would overflow."""
    target = dtype.numpy
    if value.dtype == target:
        return value
    if dtype.is_integer and value.dtype.kind == "f":
        return _truncate(value, dtype)
    if dtype.is_float and dtype.bits <= 8:
        return _narrow_float(value, dtype, saturate)
    if dtype.is_integer and dtype.bits < 8:
        return _wrap_bits(value, dtype)
    return value.astype(target)


def _truncate(value: Numbers, dtype: DType) -> Numbers:
    wide = np.trunc(value.astype(np.float64, copy=False))
    if dtype.bits < 8:
        return _wrap_bits(wide.astype(np.int64), dtype)
    if dtype.bits == 64:
        return value.astype(dtype.numpy)
    return wide.astype(np.int64).astype(dtype.numpy)


def _wrap_bits(value: Numbers, dtype: DType) -> Numbers:
    mask, sign = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    bits = value.astype(np.int64) & mask
    if dtype.kind == "int":
        bits = (bits ^ sign) - sign
    return bits.astype(np.int8 if dtype.kind == "int" else np.uint8).astype(dtype.numpy)


def _narrow_float(value: Numbers, dtype: DType, saturate: bool) -> Numbers:
    wide = value.astype(np.float32, copy=False)
    if saturate and dtype.name != "f8e8m0":
        limit = float(ml_dtypes.finfo(dtype.numpy).max)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        wide = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
    return wide.astype(dtype.numpy)


def _divide(left: Numbers, right: Numbers) -> Numbers:
    if left.dtype.kind == "f":
        return np.divide(left, right)
    safe = np.where(right == 0, 1, right).astype(right.dtype)
    quotient = np.floor_divide(left, safe)
    inexact = (quotient * safe != left) & ((left < 0) != (safe < 0))
    return (quotient + inexact).astype(left.dtype)


def _modulo(left: Numbers, right: Numbers) -> Numbers:
    return np.mod(left, np.where(right == 0, 1, right).astype(right.dtype) if right.dtype.kind != "f" else right)


def _fmod(left: Numbers, right: Numbers) -> Numbers:
    return np.fmod(left, np.where(right == 0, 1, right).astype(right.dtype) if right.dtype.kind != "f" else right)


def _power(left: Numbers, right: Numbers) -> Numbers:
    if left.dtype.kind in "iu":
        return (
            np.power(left.astype(np.float64), right.astype(np.float64)).astype(left.dtype)
            if np.any(np.asarray(right) < 0)
            else np.power(left, right)
        )
    return np.power(left, right)


def _sigmoid(value: Numbers) -> Numbers:
    """1 / (1 + exp(-x)), written so that exp never overflows."""
    small = np.exp(-np.abs(value))
    return np.where(value >= 0, 1 / (1 + small), small / (1 + small)).astype(value.dtype)


_vector_erf = np.vectorize(erf, otypes=[np.float64])


def _erf(value: Numbers) -> Numbers:
    return _vector_erf(value).astype(value.dtype)


def _normal_cdf(value: Numbers) -> Numbers:
    return (0.5 + 0.5 * _vector_erf(np.float64(sqrt(0.5)) * value)).astype(value.dtype)


def _round(value: Numbers) -> Numbers:
    """To even. An integer stays as it is: numpy would take it through float64."""
    return np.rint(value) if value.dtype.kind == "f" else value


def _shift_left(left: Numbers, right: Numbers) -> Numbers:
    """A shift by the width or more leaves nothing."""
    width = left.dtype.itemsize * 8
    return np.where(right >= width, 0, np.left_shift(left, np.minimum(right, width - 1))).astype(left.dtype)


def _shift_right(left: Numbers, right: Numbers) -> Numbers:
    """A shift by the width or more leaves the sign."""
    width = left.dtype.itemsize * 8
    shifted = np.right_shift(left, np.minimum(right, width - 1).astype(right.dtype))
    return np.where(right >= width, shifted >> 1, shifted).astype(left.dtype)


def _same_bits(value: Numbers) -> Numbers:
    kind = "i" if value.dtype.kind == "f" else "f"
    return value.view(f"{kind}{value.itemsize}")


def _bitwise_not(value: Numbers) -> Numbers:
    return np.logical_not(value) if value.dtype.kind == "b" else np.invert(value)


FUNCTIONS: dict[str, Callable[..., Numbers]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "mod": _modulo, "fmod": _fmod},
    **{"pow": _power, "max": np.maximum, "min": np.minimum},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
    **{"shl": _shift_left, "shr": _shift_right},
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal},
    **{"neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "round": _round},
    **{"sqrt": np.sqrt, "reciprocal": np.reciprocal, "exp": np.exp, "expm1": np.expm1, "log": np.log},
    **{"log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos},
    **{"atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh},
    **{"acosh": np.arccosh, "atanh": np.arctanh, "erf": _erf, "normal_cdf": _normal_cdf},
    **{"sigmoid": _sigmoid, "not": _bitwise_not},
    **{"isnan": np.isnan, "isinf": np.isinf, "bits": _same_bits},
}
"""What each primitive of tensor expressions does to arrays of its compute type."""
