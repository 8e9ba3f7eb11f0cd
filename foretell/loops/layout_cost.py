"""What a stage costs with its tensors stored in some order of dimensions: memory operations, with its best axis in
vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2, prod
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Cast, Load, Scalar
from foretell.loops.cases import Cases, cases_of
from foretell.loops.nodes import at_origin, loads_once, offset, substitute_scalar
from foretell.loops.stages import TensorStage

Layout: TypeAlias = tuple[int, ...]
"""Which dimension stands at each place: (0, 2, 3, 1) stores [n, c, h, w] as [n, h, w, c]."""
Strides: TypeAlias = tuple[int | None, ...]
"""How far the address moves per step of each axis, in elements; None where that is not one number."""


NOMINAL_SIZE = 61
"""What an unknown dimension counts as: long, and a multiple of nothing."""
SCATTER_PRICE = 4.0
"""What it costs to store an element on a line of its own: twice what it costs to load it."""
EVERY_SECOND_PRICE = 3.0
"""What a vector of every second element costs: two that straddle lines."""
JUMP_PRICE = 0.9
"""What it adds to an element for all lanes if every step of a sum finds it on another line; measured on Ice Lake."""
COPY_PRICE = 1.8
"""What it costs to copy an element of an operand of a sum to where its vectors begin at lines, on every core. Copying
alone costs less; with 1.5, depthwise convolutions of small images would stay with channels first, and take longer."""
NONE: frozenset[int] = frozenset()
LINE_ELEMENTS = 16
"""Elements of four bytes in a line of the cache."""
WAY_ELEMENTS = 1024
"""Elements in a way of the first cache: lanes at a distance of a multiple of this go to the same place, and"""
CROWDED = 4.0
"""their lines cost so much more, as they are gone before their other elements are needed; from one transposition."""


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store: sizes of the dimensions, and how each index moves along each axis of the stage."""

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    """Per dimension, the step per axis; where indices are not linear, `load` says what they are."""
    axes: int
    load: Load | None = None
    syms: tuple[Sym, ...] = ()
    is_load: bool = True
    is_inner: bool = False
    """Whether it happens at every point of a reduction, not once for its result."""
    packed: frozenset[int] = frozenset()
    """Axes along which it can be made contiguous beforehand."""
    copied: frozenset[int] = frozenset()
    """Axes along which a copy of it can begin at lines, if it serves several points."""
    times: int = 1
    """How many there are that differ only by where they start."""

    def strides(self, layout: Layout) -> Strides:
        if self.load is not None:
            return _strides_of(self.load, self.syms, layout)
        distance = 1
        strides = [0] * self.axes
        for dimension in reversed(layout):
            for axis, step in enumerate(self.steps[dimension]):
                strides[axis] += step * distance
            distance *= self.shape[dimension]
        return tuple(strides)


def _strides_of(load: Load, syms: tuple[Sym, ...], layout: Layout) -> Strides:
    assert isinstance(load.source, Buffer)
    plain = [index for index in load.indices if isinstance(index, (int, expr.Expr))]
    if len(plain) < len(load.indices):
        return (None,) * len(syms)
    shape = tuple(load.source.shape[k] for k in layout)
    place = offset(shape, tuple(plain[k] for k in layout))
    linear = (expr.try_linear(place, frozenset({sym})) for sym in syms)
    return tuple(None if found is None else found[0].get(sym, 0) for found, sym in zip(linear, syms, strict=True))


@dataclass(frozen=True, slots=True)
class StageShape:
    """All of a stage that its cost depends on: layers that repeat have equal ones."""

    extents: tuple[int, ...]
    outer: int
    """How many of the axes are not reduced."""
    is_contraction: bool
    """Whether it is a sum of products."""
    is_edge: bool
    """Whether it is a copy that is left out if it transposes nothing."""
    accesses: tuple[Access, ...]
    cased: frozenset[int] = frozenset()
    """Axes whose value chooses among cases: no vectors run along them."""
    cases: int = 1
    """How many cases there are in all; neighbouring ones share their loads."""


def stage_cost(shape: StageShape, strides: Sequence[Strides], lanes: int) -> float:
    """Memory operations of a stage with its best axis in vectors.

    A vector is one operation: contiguous ones cost 1, or 1.5 if they straddle lines of the cache; one element for all
    lanes costs 1/2, as it serves several vectors of a sum of products or else 1, and more the fewer neighbours such a
    sum takes from its line; anything else is gathered lane by lane, for more than an operation each. A short axis
    leaves lanes empty. Along a reduced axis the lanes must be combined in the end, and the result is stored alone;
    a sum of products, whose operands serve only one result then instead of a tile of them, pays twice.
    """
    if shape.is_edge and strides[0] == strides[1]:
        return 0.0
    points, results = prod(shape.extents), prod(shape.extents[: shape.outer])
    best = float(points * len(strides))
    for axis, extent in enumerate(shape.extents):
        if extent == 1 or axis in shape.cased:
            continue
        run, joined = _run(shape.extents, strides, axis, shape.outer)
        filled = run / (-(-run // lanes) * lanes) if run else 1.0
        inner = outer = copied = 0.0
        for access, row in zip(shape.accesses, strides, strict=True):
            price = _price(shape, access, row, axis, joined, lanes, run)
            price = price * access.times / shape.cases if access.is_load else price
            inner, outer = (inner + price, outer) if access.is_inner else (inner, outer + price)
            copied += prod(access.shape) if _is_copied(shape, access, row, axis, joined, lanes) else 0
        if axis < shape.outer:
            total = (outer * results + inner * points) / filled + COPY_PRICE * copied
        else:
            across = inner * points / filled
            combined = 2 * across if shape.is_contraction else across + results * log2(lanes)
            total = combined + results * sum(not access.is_inner for access in shape.accesses)
        best = min(best, total)
    return best


def _run(extents: Sequence[int], strides: Sequence[Strides], axis: int, outer: int) -> tuple[int, set[int]]:
    """The points of an axis and of those that continue it wherever the stage reads and writes; and these axes.

    Reduced axes continue reduced ones only, whatever the store does.
    """
    run, joined = extents[axis], {number for number, extent in enumerate(extents) if extent == 1 or number == axis}
    alike = range(outer) if axis < outer else range(outer, len(extents))
    for other in reversed(alike):
        if other not in joined and all(_continues(row[other], row[axis], run) for row in strides):
            run *= extents[other]
            joined.add(other)
    return run, joined


def _continues(outer: int | None, inner: int | None, run: int) -> bool:
    return outer is not None and inner is not None and outer == inner * run


def _price(
    shape: StageShape, access: Access, strides: Strides, axis: int, joined: set[int], lanes: int, run: int
) -> float:
    stride = strides[axis]
    if stride == 0:
        is_operand = shape.is_contraction and access.is_inner
        jumps = is_operand and not access.packed
        serves_one = is_operand and run <= lanes
        return ((1.0 if serves_one else 0.5) + (JUMP_PRICE / _neighbours(shape, strides) if jumps else 0.0)) / lanes
    if axis in access.packed:
        return 1.0 / lanes
    if _is_copied(shape, access, strides, axis, joined, lanes):
        return 1.0 / lanes
    if stride == 2 and access.is_load:
        return EVERY_SECOND_PRICE / lanes
    if stride != 1:
        far = 2.0 if access.is_load else SCATTER_PRICE
        if stride is not None and stride % WAY_ELEMENTS == 0:
            far *= CROWDED
        return far
    return (1.0 if _is_aligned(strides, joined, lanes) else 1.5) / lanes


def _is_copied(shape: StageShape, access: Access, strides: Strides, axis: int, joined: set[int], lanes: int) -> bool:
    """Whether vectors that straddle lines, or are of every second element, serve so many points that a copy pays."""
    can_be_copied = axis in access.copied and 0 in strides[: shape.outer]
    return can_be_copied and (strides[axis] == 2 or (strides[axis] == 1 and not _is_aligned(strides, joined, lanes)))


def _is_aligned(strides: Strides, joined: set[int], lanes: int) -> bool:
    others = (step for number, step in enumerate(strides) if number not in joined)
    return all(step is not None and step % lanes == 0 for step in others)


def _neighbours(shape: StageShape, strides: Strides) -> float:
    """How many elements of a line a sum takes one after the other, along the reduction that suits that best."""
    reduced = zip(shape.extents[shape.outer :], strides[shape.outer :], strict=True)
    return max((min(e, max(1.0, LINE_ELEMENTS / abs(s))) for e, s in reduced if s and e), default=1.0)


# --- what is known of a stage ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage, with the reduction that it reads if they are fused, over one set of axes."""

    axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    outer: tuple[Load, ...]
    """What is stored once per point of the axes, and then what is loaded so, all written as loads."""
    inner: tuple[Load, ...]
    """What is loaded at every point of the reduction."""
    is_contraction: bool
    cases: Mapping[Sym, Cases] = field(default_factory=dict[Sym, Cases])
    """Those that the value of an axis chooses among."""
    times: Mapping[Load, int] = field(default_factory=dict[Load, int])
    """How often there is a load that moves like one, if not once."""


def nest_of(stage: TensorStage, reduction: TensorStage | None) -> Nest:
    store = Load(stage.buffer, stage.place, stage.buffer.dtype)
    loads = tuple(dict.fromkeys(loads_once(stage.body)))
    source = stage if reduction is None else reduction
    is_contraction = source.reduction == "sum" and _is_product(source.body)
    if reduction is None:
        if stage.reduction is not None:
            return Nest(stage.axes, stage.reduction_axes, (store,), loads, is_contraction)
        times = Counter(map(at_origin, loads))
        return Nest(stage.axes, (), (store, *times), (), is_contraction, cases_of(stage.body, stage.axes), times)
    names: dict[Sym, Dim] = {own.sym: axis.sym for own, axis in zip(reduction.axes, stage.axes, strict=True)}
    inner = tuple(dict.fromkeys(loads_once(substitute_scalar(reduction.body, names))))
    outer = (store, *(load for load in loads if load.source != reduction.buffer))
    return Nest(stage.axes, reduction.reduction_axes, outer, inner, is_contraction)


def shape_of(
    nest: Nest, constants: frozenset[str], is_edge: bool, wide: Mapping[Buffer, tuple[Dim, ...]]
) -> StageShape:
    """What the cost of a nest depends on; `wide` has the shapes of buffers that will be stored with a border."""
    axes = (*nest.axes, *nest.reduction_axes)
    numbers = {axis.sym: number for number, axis in enumerate(axes)}
    may_pack = nest.is_contraction and all(isinstance(axis.extent, int) for axis in axes)
    accesses = [
        replace(_access(load, numbers, False, NONE, NONE, wide), times=nest.times.get(load, 1)) for load in nest.outer
    ]
    accesses[0] = replace(accesses[0], is_load=False)
    for load in nest.inner:
        is_constant = isinstance(load.source, Buffer) and load.source.name in constants
        lone = (
            _lone_axes(load, {axis.sym: numbers[axis.sym] for axis in axes if axis.extent != 1}) if may_pack else NONE
        )
        accesses.append(_access(load, numbers, True, *((lone, NONE) if is_constant else (NONE, lone)), wide))
    extents = tuple(_nominal(axis.extent) for axis in axes)
    cased = frozenset(numbers[sym] for sym, each in nest.cases.items() if each.run == 1)
    cases = prod(each.count for each in nest.cases.values())
    return StageShape(extents, len(nest.axes), nest.is_contraction, is_edge, tuple(accesses), cased, cases)


def _lone_axes(load: Load, numbers: Mapping[Sym, int]) -> frozenset[int]:
    """Axes that are an index by themselves and occur in no other: what `schedule.pack` and `copy_operand` can put
    innermost, for sums of products whose sizes are known. Axes without a number have one point and do not count."""
    single = {sym: 0 for sym in _symbols(load) if sym not in numbers}
    plain = [expr.substitute(index, single) for index in load.indices if isinstance(index, (int, expr.Expr))]
    used = [sym for index in plain for sym in expr.symbols(index)]
    return frozenset(numbers[index] for index in plain if isinstance(index, Sym) and used.count(index) == 1)


def _symbols(load: Load) -> Iterator[Sym]:
    for index in load.indices:
        if isinstance(index, expr.Expr):
            yield from expr.symbols(index)


def _is_product(scalar: Scalar) -> bool:
    match scalar:
        case Cast(value):
            return _is_product(value)
        case Apply("mul", _):
            return True
        case Apply("add", terms):
            return all(map(_is_product, terms))
        case _:
            return False


def _access(
    load: Load,
    numbers: Mapping[Sym, int],
    is_inner: bool,
    packed: frozenset[int],
    copied: frozenset[int],
    wide: Mapping[Buffer, tuple[Dim, ...]],
) -> Access:
    assert isinstance(load.source, Buffer)
    shape = tuple(map(_nominal, wide.get(load.source, load.source.shape)))
    steps: list[tuple[int, ...]] = []
    for index in load.indices:
        linear = _steps(index, numbers) if isinstance(index, (int, expr.Expr)) else None
        if linear is None:
            return Access(
                shape, (), len(numbers), load, tuple(numbers), is_inner=is_inner, packed=packed, copied=copied
            )
        steps.append(linear)
    return Access(shape, tuple(steps), len(numbers), is_inner=is_inner, packed=packed, copied=copied)


def _steps(index: Dim, numbers: Mapping[Sym, int]) -> tuple[int, ...] | None:
    row = [0] * len(numbers)
    for monomial, coefficient in expr.terms_of(index):
        if len(monomial) == 1 and isinstance(monomial[0], Sym) and monomial[0] in numbers:
            row[numbers[monomial[0]]] = coefficient
        elif any(sym in numbers for atom in monomial for sym in expr.symbols(atom)):
            return None
    return tuple(row)


def _nominal(dim: Dim) -> int:
    """The dimension, or one that it might well be."""
    if isinstance(dim, int):
        return dim
    size = expr.substitute(dim, {sym: _nominal_symbol(sym) for sym in expr.symbols(dim)})
    assert isinstance(size, int)
    return max(0, size)


def _nominal_symbol(sym: Sym) -> int:
    size = max(sym.lo, NOMINAL_SIZE if sym.hi is None else min(sym.hi, NOMINAL_SIZE))
    return max(sym.multiple_of, size // sym.multiple_of * sym.multiple_of)
