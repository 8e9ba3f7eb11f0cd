"""Products of matrices with seven multiplications of their quarters instead of eight (Strassen, 1969).

    S = StrassenOperand(x)        S[p, ..., i, k] = sum[q] left[p, q] * (quarter q of x)[i, k]
    M = MatMul(S, T)              M[p, ..., i, j] = sum[k] S[p, ..., i, k] * T[p, ..., k, j]
    y = StrassenResult(M, bias)   (quarter q of y)[i, j] = sum[p] results[q, p] * M[p, ..., i, j]

T are the like sums of quarters of constant weights (`rewrites/use_strassen.py`). With several levels the quarters are
quartered in turn, and p goes through all of 7 x 7 ... in row-major order. Rows of x and y are dealt out in turn: a
quarter has every second one, the last may be missing, and what is not finite spreads to neighbours only. The other
axes are cut in the middle, so that vectors run along them. The sums are written out, as those of `ops/winograd.py` are.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from foretell.graph.cook_toom import Matrix
from foretell.graph.ops.attrs import int_attr, ints_attr
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.graph.ops.winograd import Places, by_value, transformed
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Const,
    Definition,
    Index,
    Load,
    Operand,
    Scalar,
    Select,
    Stage,
    TensorType,
    axes_over,
)


def _matrix(*rows: tuple[int, ...]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


LEFT = _matrix((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
RIGHT = _matrix((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
RESULTS = _matrix((1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0))
"""Quarters are numbered by rows: upper left, upper right, lower left, lower right."""
PRODUCTS = len(LEFT)
AMPLIFICATION = 6.0**0.5
"""By how much a level makes what is added up larger than results, for independent values: quarters 0 and 3 add most."""


def _quarters(levels: int) -> list[tuple[Places, int, int]]:
    """Each place, one quarter for each level, with its number among the parts of rows and of columns."""
    found: list[tuple[Places, int, int]] = []
    for place in product(range(4), repeat=levels):
        row = column = 0
        for quarter in place:
            row, column = 2 * row + quarter // 2, 2 * column + quarter % 2
        found.append((place, row, column))
    return found


# --- StrassenOperand(x){levels, rows, columns, strides}: the sums that are multiplied -----------------------------


def infer_strassen_operand(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, levels = present(operands[0]), int_attr(attrs, "levels")
    rows, columns = int_attr(attrs, "rows"), int_attr(attrs, "columns")
    shape = [-(-extent // stride) for extent, stride in zip(x.shape, ints_attr(attrs, "strides"), strict=True)]
    parts = 2**levels
    others = [extent for axis, extent in enumerate(shape) if axis not in (rows, columns)]
    if shape[columns] % parts != 0:
        raise ValueError(f"{x} cannot be cut into {parts} parts along axis {columns}")
    return (TensorType(x.dtype, (PRODUCTS**levels, *others, -(-shape[rows] // parts), shape[columns] // parts)),)


def define_strassen_operand(operands: Operands, attrs: Attrs) -> Definition:
    """S[p, others..., i, k], where axes `rows` and `columns` of x go last."""
    x, (out,) = present(operands[0]), infer_strassen_operand(operands, attrs)
    levels, rows, columns = int_attr(attrs, "levels"), int_attr(attrs, "rows"), int_attr(attrs, "columns")
    number, *others, i, k = axes_over(out.shape)
    strides, parts = ints_attr(attrs, "strides"), 2**levels

    def element(row: int, column: int) -> Scalar:
        place: list[Dim] = [axis.sym for axis in others]
        for axis, at in sorted(((rows, i.sym * parts + row), (columns, k.sym + column * k.extent))):
            place.insert(axis, at)
        load = Load(Operand(0), tuple(at * stride for at, stride in zip(place, strides, strict=True)), x.dtype)
        if (i.extent - 1) * parts + row < -(-x.shape[rows] // strides[rows]):
            return load
        return Select(Apply("lt", (Index(i.sym), Index(i.extent - 1))), load, Const(0, x.dtype))

    values: dict[Places, Scalar] = {place: element(row, column) for place, row, column in _quarters(levels)}
    sums = transformed(values, [LEFT] * levels, x.dtype)
    body = by_value(number.sym, list(sums.values()))
    return Definition((Stage("s", x.dtype, (number, *others, i, k), body),), (0,))


# --- StrassenResult(m, bias?){levels, rows, columns, count}: of so many rows ----------------------------------------


def infer_strassen_result(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    m, parts = present(operands[0]), 2 ** int_attr(attrs, "levels")
    rows, columns = int_attr(attrs, "rows"), int_attr(attrs, "columns")
    shape = list(m.shape[1:-2])
    for axis, extent in sorted(((rows, int_attr(attrs, "count")), (columns, m.shape[-1] * parts))):
        shape.insert(axis, extent)
    return (TensorType(m.dtype, tuple(shape)),)


def define_strassen_result(operands: Operands, attrs: Attrs) -> Definition:
    m, (out,) = present(operands[0]), infer_strassen_result(operands, attrs)
    bias = operands[1] if len(operands) > 1 else None
    levels, rows, columns = int_attr(attrs, "levels"), int_attr(attrs, "rows"), int_attr(attrs, "columns")
    parts, axes = 2**levels, axes_over(out.shape)
    i, j, width = axes[rows].sym, axes[columns].sym, m.shape[-1]
    others = [axis.sym for number, axis in enumerate(axes) if number not in (rows, columns)]
    loads: dict[Places, Scalar] = {
        place: Load(Operand(0), (number, *others, i // parts, j % width), m.dtype)
        for number, place in enumerate(product(range(PRODUCTS), repeat=levels))
    }
    sums = transformed(loads, [RESULTS] * levels, m.dtype)
    places = {(row, column): sums[place] for place, row, column in _quarters(levels)}
    cases = [by_value(j // width, [places[row, column] for column in range(parts)]) for row in range(parts)]
    body = by_value(i % parts, cases)
    if bias is not None:
        body = Apply("add", (body, Load(Operand(1), (j,), bias.dtype)))
    return Definition((Stage("y", out.dtype, axes, body),), (0,))


STRASSEN: dict[str, OpDef] = {
    "StrassenOperand": OpDef("StrassenOperand", infer_strassen_operand, define_strassen_operand),
    "StrassenResult": OpDef("StrassenResult", infer_strassen_result, define_strassen_result),
}
