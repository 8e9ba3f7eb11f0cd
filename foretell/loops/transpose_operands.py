"""Copies of operands of a sum of products: of one that no axis of the output runs along, and of the caller's.

before: s[i, j] = sum[d] q[i, d] * k[j, d]
after:  t[d, j] = k[j, d];  s[i, j] = sum[d] q[i, d] * t[d, j]

Arrays of the caller begin anywhere in a line of the cache, numpy's as a rule 16 bytes behind its beginning: the slabs
that tiles read of them touch up to twice as many lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Axis, Buffer, Load, axis_over
from foretell.loops.axes import access_stride, stands_alone, stride_along
from foretell.loops.nodes import loads_in, map_loads
from foretell.loops.stages import TensorStage, is_sum_of_products

LEAST_USES = 16
"""A copy pays if every element is used so often."""


@dataclass(frozen=True, slots=True)
class Unaligned:
    """An operand of a product that begins anywhere in a line: `length` by `width` elements, `batch` times."""

    batch: int
    rows: int
    """Of the output, which all use the same elements."""
    length: int
    """Steps of the sum."""
    width: int
    bits: int
    """Of an element."""

    @property
    def size_bytes(self) -> int:
        return self.batch * self.length * self.width * self.bits // 8


Aligns = Callable[[Unaligned], bool]
"""Tells whether a copy that begins at a line is worth it."""


def never(_: Unaligned) -> bool:
    return False


def transpose_operands(
    stages: Sequence[TensorStage],
    constants: frozenset[str],
    inputs: frozenset[str] = frozenset(),
    aligns: Aligns = never,
) -> list[TensorStage]:
    """Add copies where they let a sum of products run in vectors over its output, or these begin at lines.

    Copies of `inputs` come first, in nobody's way. Declines when an axis of the output suits vectors already (constants
    are packed when code is made) and the operand is no input that is worth aligning, when two operands would have to be
    copied, and when elements are used too rarely.
    """
    first: list[TensorStage] = []
    result: list[TensorStage] = []
    for number, stage in enumerate(stages):
        strided = _try_operand(stage, constants) if is_sum_of_products(stage) else None
        found = strided or (_try_unaligned(stage, inputs, aligns) if is_sum_of_products(stage) else None)
        if found is not None:
            load, axis = found
            order = _order(load, axis)
            copy = _transposed(load, order, number)
            (first if strided is None else result).append(copy)
            stage = _reading(stage, load, copy.buffer, order)
        result.append(stage)
    return [*first, *result]


def _try_operand(stage: TensorStage, constants: frozenset[str]) -> tuple[Load, Axis] | None:
    """The operand to copy and the axis that it should be contiguous along: the smallest that will do."""
    loads = list(dict.fromkeys(loads_in(stage.body)))
    if not all(_is_plain(load) for load in loads):
        return None
    found: list[tuple[int, Load, Axis]] = []
    for axis in stage.axes:
        strided = [load for load in loads if not _is_near(load, axis, constants)]
        if not strided:
            return None
        if len(strided) == 1 and access_stride(stage.buffer, stage.place, axis.sym) == 1:
            elements = strided[0].source.type.elements if isinstance(strided[0].source, Buffer) else None
            if isinstance(elements, int) and isinstance(stage.points, int) and stands_alone(strided[0], axis.sym):
                found += [(elements, strided[0], axis)] if stage.points >= LEAST_USES * elements else []
    return min(found, key=lambda each: each[0])[1:] if found else None


def _try_unaligned(stage: TensorStage, inputs: frozenset[str], aligns: Aligns) -> tuple[Load, Axis] | None:
    """The caller's operand that alone runs along the output, if a copy of it would be worth it."""
    loads = list(dict.fromkeys(loads_in(stage.body)))
    if not all(map(_is_plain, loads)):
        return None
    for axis in stage.axes:
        along = [load for load in loads if _stride(load, axis) != 0]
        if len(along) != 1 or access_stride(stage.buffer, stage.place, axis.sym) != 1:
            continue
        (load,) = along
        source, symbols = load.source, set(load.indices)
        if not isinstance(source, Buffer) or source.name not in inputs or _stride(load, axis) != 1:
            continue
        is_whole = all(isinstance(index, Sym) for index in load.indices) and len(symbols) == len(load.indices)
        unaligned = _try_sizes(stage, source, axis) if is_whole else None
        if unaligned is not None and aligns(unaligned):
            return load, axis
    return None


def _try_sizes(stage: TensorStage, source: Buffer, axis: Axis) -> Unaligned | None:
    """What a stage reads of a buffer along an axis; None if sizes are not known, or empty."""
    points, elements, width = stage.points, source.type.elements, axis.extent
    extents = [axis.extent for axis in stage.reduction_axes]
    length = prod(extent if isinstance(extent, int) else 0 for extent in extents)
    if not (isinstance(points, int) and isinstance(elements, int) and isinstance(width, int) and length and elements):
        return None
    batch, rows = elements // (length * width), points // elements
    return Unaligned(batch, rows, length, width, 8 * source.dtype.itemsize) if batch and rows else None


def _stride(load: Load, axis: Axis) -> int | None:
    assert isinstance(load.source, Buffer)
    return stride_along(load.source, load.indices, axis.sym)


def _is_plain(load: Load) -> bool:
    return all(isinstance(index, (int, expr.Expr)) for index in load.indices)


def _is_near(load: Load, axis: Axis, constants: frozenset[str]) -> bool:
    assert isinstance(load.source, Buffer)
    if stride_along(load.source, load.indices, axis.sym) in (0, 1):
        return True
    return load.source.name in constants and stands_alone(load, axis.sym)


def _transposed(load: Load, order: list[int], number: int) -> TensorStage:
    """The stage that copies an operand with its dimensions in another order."""
    source = load.source
    assert isinstance(source, Buffer)
    axes = tuple(axis_over(source.shape[dimension], f"t{dimension}.{number}") for dimension in order)
    indices = tuple(axes[order.index(dimension)].sym for dimension in range(len(order)))
    buffer = replace(
        source,
        name=f"{source.name}.by{order[-1]}.{number}",
        shape=tuple(source.shape[dimension] for dimension in order),
    )
    place = tuple(each.sym for each in axes)
    return TensorStage(buffer, axes, Load(source, indices, load.dtype), None, (), place, "")


def _order(load: Load, axis: Axis) -> list[int]:
    """The dimensions of a load's buffer, that of the axis last."""
    last = list(load.indices).index(axis.sym)
    return [*(dimension for dimension in range(len(load.indices)) if dimension != last), last]


def _reading(stage: TensorStage, load: Load, copy: Buffer, order: list[int]) -> TensorStage:
    """The stage with that load taken from the copy."""
    instead = Load(copy, tuple(load.indices[dimension] for dimension in order), load.dtype)
    return replace(stage, body=map_loads(stage.body, lambda old: instead if old == load else old))
