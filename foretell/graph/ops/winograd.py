"""Convolutions in tiles of m x m results by Winograd's minimal filtering (`graph/cook_toom.py`).

    p = Phases(x)                p[n, (f..., c), j...] = x[n, c, s*j + f...]     where there are strides s
    V = WinogradInput(x)         V[a, n, t..., c] = (B^T d B)[a]     d: the part of x that tile t depends on
    M = MatMul(V, U)             M[a, n, t..., o] = sum[c] V[a, n, t..., c] * U[a, c, o]
    y = WinogradOutput(M, bias)  y[n, o, m*t + p...] = (A^T M A)[p] + bias[o]

Along each spatial axis there are alpha = m + r - 1 places; a is the place along all of them in row-major order. The
transformations are sums written out: which one it is, a selection by a, or by what remains of a place divided by m,
decides, and loops are cut there (`loops/split_by_value.py`). Parts of a sum that several results have in common are
the same expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TypeAlias

from foretell.graph.cook_toom import Matrix, minimal_filtering
from foretell.graph.ops.attrs import ints_attr
from foretell.graph.ops.contraction import padded
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir import expr
from foretell.ir.dtypes import F32, DType
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
    axis_over,
)

Places: TypeAlias = tuple[int, ...]
"""One place of a tile, along each spatial axis."""


def tile_places(attrs: Attrs) -> tuple[int, ...]:
    """alpha along each spatial axis."""
    tile, kernel = ints_attr(attrs, "tile"), ints_attr(attrs, "kernel")
    return tuple(m + r - 1 for m, r in zip(tile, kernel, strict=True))


def tile_counts(attrs: Attrs) -> tuple[int, ...]:
    """Tiles along each spatial axis; the last may reach beyond the results."""
    tile, shape = ints_attr(attrs, "tile"), ints_attr(attrs, "shape")
    return tuple(-(-extent // m) for m, extent in zip(tile, shape, strict=True))


def _count(numbers: Sequence[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


# --- Phases(x){strides, before, shape}: every s-th element as channels of their own, from each of the first s ---


def infer_phases(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, strides, shape = present(operands[0]), ints_attr(attrs, "strides"), ints_attr(attrs, "shape")
    if x.rank != len(strides) + 2 or len(shape) != len(strides):
        raise ValueError(f"phases of {strides} and {shape} do not fit the spatial axes of {x}")
    return (TensorType(x.dtype, (x.shape[0], x.shape[1] * _count(strides), *shape)),)


def define_phases(operands: Operands, attrs: Attrs) -> Definition:
    x, (out,) = present(operands[0]), infer_phases(operands, attrs)
    strides, before = ints_attr(attrs, "strides"), ints_attr(attrs, "before")
    after = tuple(
        expr.maximum(0, stride * count - first - extent)
        for stride, count, first, extent in zip(strides, out.shape[2:], before, x.shape[2:], strict=True)
    )
    stages, source = padded(x, before, after)
    axes = axes_over(out.shape)
    phase: Dim = axes[1].sym // x.shape[1]
    places: list[Dim] = []
    for stride, axis in reversed(list(zip(strides, axes[2:], strict=True))):
        places.insert(0, axis.sym * stride + phase % stride)
        phase = phase // stride
    body = Load(source, (axes[0].sym, axes[1].sym % x.shape[1], *places), x.dtype)
    return Definition((*stages, Stage("phases", x.dtype, axes, body)), (len(stages),))


# --- WinogradInput(x){tile, kernel, before, shape} -----------------------------------------------------------


def infer_winograd_input(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x = present(operands[0])
    if x.rank != len(ints_attr(attrs, "tile")) + 2:
        raise ValueError(f"tiles of {attrs['tile']} do not fit the spatial axes of {x}")
    return (TensorType(x.dtype, (_count(tile_places(attrs)), x.shape[0], *tile_counts(attrs), x.shape[1])),)


def define_winograd_input(operands: Operands, attrs: Attrs) -> Definition:
    x, (out,) = present(operands[0]), infer_winograd_input(operands, attrs)
    tile, places = ints_attr(attrs, "tile"), tile_places(attrs)
    before = ints_attr(attrs, "before")
    after = tuple(
        count * m + alpha - m - first - extent
        for count, m, alpha, first, extent in zip(tile_counts(attrs), tile, places, before, x.shape[2:], strict=True)
    )
    stages, source = padded(x, before, after)
    axes = axes_over(out.shape)
    number, n, tiles, c = axes[0].sym, axes[1].sym, axes[2:-1], axes[-1].sym
    loads: dict[Places, Scalar] = {
        place: Load(source, (n, c, *(t.sym * m + p for t, m, p in zip(tiles, tile, place, strict=True))), x.dtype)
        for place in product(*map(range, places))
    }
    matrices = [minimal_filtering(m, r).data for m, r in zip(tile, ints_attr(attrs, "kernel"), strict=True)]
    body = by_value(number, list(transformed(loads, matrices, x.dtype).values()))
    return Definition((*stages, Stage("v", x.dtype, axes, body)), (len(stages),))


# --- WinogradOutput(m, bias?){tile, kernel, shape} -----------------------------------------------------------


def infer_winograd_output(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    m = present(operands[0])
    if m.shape[0] != _count(tile_places(attrs)) or m.shape[2:-1] != tile_counts(attrs):
        raise ValueError(f"{m} does not hold the tiles of {attrs['shape']}")
    return (TensorType(m.dtype, (m.shape[1], m.shape[-1], *ints_attr(attrs, "shape"))),)


def define_winograd_output(operands: Operands, attrs: Attrs) -> Definition:
    m, (out,) = present(operands[0]), infer_winograd_output(operands, attrs)
    bias = operands[1] if len(operands) > 1 else None
    tile, places = ints_attr(attrs, "tile"), tile_places(attrs)
    axes = tuple(axis_over(extent, f"i{number}") for number, extent in enumerate(out.shape))
    n, o, space = axes[0].sym, axes[1].sym, axes[2:]
    tiles: tuple[Dim, ...] = tuple(axis.sym // size for axis, size in zip(space, tile, strict=True))
    loads: dict[Places, Scalar] = {
        place: Load(Operand(0), (number, n, *tiles, o), m.dtype)
        for number, place in enumerate(product(*map(range, places)))
    }
    matrices = [minimal_filtering(m, r).results for m, r in zip(tile, ints_attr(attrs, "kernel"), strict=True)]
    results = transformed(loads, matrices, m.dtype)
    body = _by_remainders(tuple(axis.sym % size for axis, size in zip(space, tile, strict=True)), tile, results, ())
    if bias is not None:
        body = Apply("add", (body, Load(Operand(1), (o,), bias.dtype)))
    return Definition((Stage("y", out.dtype, axes, body),), (0,))


def _by_remainders(
    remainders: tuple[Dim, ...], tile: tuple[int, ...], results: Mapping[Places, Scalar], place: Places
) -> Scalar:
    """The result whose place in its tile is that of the remainders, the first of which are known."""
    if len(place) == len(tile):
        return results[place]
    number = len(place)
    cases = [_by_remainders(remainders, tile, results, (*place, p)) for p in range(tile[number])]
    return by_value(remainders[number], cases)


def by_value(value: Dim, cases: Sequence[Scalar]) -> Scalar:
    """cases[value]"""
    body = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        body = Select(Apply("eq", (Index(value), Index(number))), cases[number], body)
    return body


# --- linear transformations, written out ---------------------------------------------------------------------


def transformed(values: Mapping[Places, Scalar], matrices: Sequence[Matrix], dtype: DType) -> dict[Places, Scalar]:
    """Each axis of a small array multiplied by its matrix, the first axis first; in row-major order."""
    current = dict(values)
    for axis, exact in enumerate(matrices):
        matrix = [[float(factor) for factor in row] for row in exact]
        rows: dict[Places, list[Scalar]] = {}
        for place in sorted(current):
            rows.setdefault(place[:axis] + place[axis + 1 :], []).append(current[place])
        current = {
            (*rest[:axis], number, *rest[axis:]): value
            for rest, row in rows.items()
            for number, value in enumerate(products(matrix, row, dtype))
        }
    return {place: current[place] for place in sorted(current)}


def products(matrix: Sequence[Sequence[float]], values: Sequence[Scalar], dtype: DType) -> list[Scalar]:
    """A matrix times a vector; points p and -p make pairs of columns or rows that share sums.

    y0 = 4*x0 + x1 + x2;  y1 = 4*x0 - x1 - x2     ->  s = 4*x0; d = x1 + x2;  y0 = s + d;  y1 = s - d
    y0 = x1 + x2 + x3;    y1 = x1 - x2            ->  s = x1 + x2; d = x1 - x2;  y0 = s + x3;  y1 = d
    """
    rows = _rows_of_terms(matrix, values)
    sums: list[Scalar | None] = [None] * len(rows)
    for number, row in enumerate(rows):
        if sums[number] is not None:
            continue
        partner = next((k for k in range(number + 1, len(rows)) if _is_paired(row, rows[k])), None)
        if partner is None:
            sums[number] = _sum(row, dtype)
            continue
        same = [term for term, other in zip(row, rows[partner], strict=True) if term[0] == other[0]]
        opposite = [term for term, other in zip(row, rows[partner], strict=True) if term[0] != other[0]]
        parts = _sum(same, dtype), _sum(opposite, dtype)
        sums[number], sums[partner] = Apply("add", parts), Apply("sub", parts)
    return [value for value in sums if value is not None]


Term: TypeAlias = tuple[float, "Scalar"]


def _rows_of_terms(matrix: Sequence[Sequence[float]], values: Sequence[Scalar]) -> list[list[Term]]:
    """What each row adds up: values, or sums and differences of two that no row tells apart but by sign."""
    columns = list(zip(*matrix, strict=True))
    rows: list[list[Term]] = [[] for _ in matrix]
    paired: set[int] = set()
    for number, column in enumerate(columns):
        if number in paired:
            continue
        partner = next((k for k in range(number + 1, len(columns)) if _is_alike(column, columns[k])), None)
        value = other = values[number]
        if partner is not None:
            paired.add(partner)
            pair = (value, values[partner])
            value, other = Apply("add", pair), Apply("sub", pair)
        for row, factor, second in zip(rows, column, column if partner is None else columns[partner], strict=True):
            if factor:
                row.append((factor, value if factor == second else other))
    return rows


def _is_alike(left: Sequence[float], right: Sequence[float]) -> bool:
    return all(one in (other, -other) for one, other in zip(left, right, strict=True))


def _is_paired(row: Sequence[Term], other: Sequence[Term]) -> bool:
    """Whether two rows add up the same terms, some with the same sign and some with the opposite."""
    same = [(abs(factor), value) for factor, value in row] == [(abs(factor), value) for factor, value in other]
    equal = sum(term[0] == another[0] for term, another in zip(row, other, strict=False))
    return same and 0 < equal < len(row)


def _sum(terms: Sequence[Term], dtype: DType) -> Scalar:
    """A sum that starts from what is added as it is; factors of 1 and -1 multiply nothing."""
    first = next((number for number, (factor, _) in enumerate(terms) if factor == 1), 0)
    factor, value = terms[first]
    total = value if factor == 1 else Apply("mul", (Const(factor, dtype), value))
    for factor, value in (*terms[:first], *terms[first + 1 :]):
        added = value if abs(factor) == 1 else Apply("mul", (Const(abs(factor), dtype), value))
        total = Apply("add" if factor > 0 else "sub", (total, added))
    return total


@cache
def transform_additions(tile: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, int]:
    """Additions, some with a product, to transform the data of one tile, and its results."""
    matrices = [minimal_filtering(m, r) for m, r in zip(tile, kernel, strict=True)]
    places = list(product(*(range(m + r - 1) for m, r in zip(tile, kernel, strict=True))))
    values: dict[Places, Scalar] = {place: Index(number) for number, place in enumerate(places)}
    data = transformed(values, [each.data for each in matrices], F32)
    results = transformed(values, [each.results for each in matrices], F32)
    return _additions(data.values()), _additions(results.values())


def _additions(sums: Iterable[Scalar]) -> int:
    """Distinct ones: what several sums have in common counts once."""
    seen: dict[int, Scalar] = {}
    waiting = list(sums)
    while waiting:
        scalar = waiting.pop()
        if isinstance(scalar, Apply) and id(scalar) not in seen:
            seen[id(scalar)] = scalar
            waiting += scalar.arguments
    return sum(isinstance(scalar, Apply) and scalar.op != "mul" for scalar in seen.values())


WINOGRAD: dict[str, OpDef] = {
    "Phases": OpDef("Phases", infer_phases, define_phases),
    "WinogradInput": OpDef("WinogradInput", infer_winograd_input, define_winograd_input),
    "WinogradOutput": OpDef("WinogradOutput", infer_winograd_output, define_winograd_output),
}
