"""Physical orders of dimensions: intermediate tensors are stored so that vectors run along memory.

A convolution is best computed with its output channels in vectors, and pools and depthwise convolutions with their
channels; between them tensors are then stored as [n, h, w, c]. Nothing here knows of channels: the orders follow from
how stages address their operands, and from what that costs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2, prod
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Cast, Load, Scalar
from foretell.loops.cases import case_periods
from foretell.loops.cluster import cluster_stages
from foretell.loops.nodes import at_origin, loads_in, map_loads, offset, substitute_scalar
from foretell.loops.stages import TensorStage

Layout: TypeAlias = tuple[int, ...]
"""Which dimension stands at each place: (0, 2, 3, 1) stores [n, c, h, w] as [n, h, w, c]."""
Strides: TypeAlias = tuple[int | None, ...]
"""How far the address moves per step of each axis, in elements; None where that is not one number."""

Change: TypeAlias = tuple[int, Layout]
"""A buffer by number, and the order it should get."""

NOMINAL_SIZE = 61
"""What an unknown dimension counts as: long, and a multiple of nothing."""
LEAST_GAIN = 0.999
"""A change must bring the cost below this fraction: what makes no difference stays as it is."""
CLEAR_GAIN = 0.995
"""A search that moves more tensors must end below this fraction of one that moves few."""
LINE_ELEMENTS = 16
"""Elements of four bytes in a line of the cache: lanes that lie further apart touch a line each."""
ROUNDS = 4
"""How often all tensors are looked at again."""


def choose_layouts(
    stages: Sequence[TensorStage], kept: frozenset[Buffer], constants: frozenset[str], lanes: int
) -> list[TensorStage]:
    """Store intermediate tensors in the order of dimensions that makes their stages cheapest.

    before: s[n, o, h, w] = sum[c, i, j] x[n, c, h+i, w+j] * k[o, c, i, j];   y[n, o, h, w] = max(s[n, o, h, w], 0)
    after:  s[n, h, w, o] = sum[c, i, j] x[n, h+i, w+j, c] * k[o, c, i, j];   y[n, h, w, o] = max(s[n, h, w, o], 0)

    The cost of a stage, together with the reduction that it finishes, is its points times the memory operations of
    each, with its best axis in vectors of `lanes` (see `_cost`). From the order as given, tensors change one by one
    while that pays, and a dimension is moved last in all tensors that stages connect, where that pays as a whole. The
    search is greedy: no optimum is promised.

    Declines for tensors that are visible outside (`kept`), inputs and constants, those stored in parts, those of which
    data decides what is read, and rows that a softmax or the like normalises in one nest.
    """
    search = _Search.over(stages, kept, constants, lanes)
    if not search.movable:
        return list(stages)
    search.run()
    layouts = search.found()
    return [_stored_as(stage, layouts) for stage in stages] if layouts else list(stages)


def _stored_as(stage: TensorStage, layouts: Mapping[Buffer, Layout]) -> TensorStage:
    def permuted(load: Load) -> Load:
        assert isinstance(load.source, Buffer)
        layout = layouts.get(load.source)
        if layout is None:
            return load
        return Load(_permuted(load.source, layout), tuple(load.indices[k] for k in layout), load.dtype)

    stage = replace(stage, body=map_loads(stage.body, permuted))
    layout = layouts.get(stage.buffer)
    if layout is None:
        return stage
    axes, place = (tuple(row[k] for k in layout) for row in (stage.axes, stage.place))
    return replace(stage, buffer=_permuted(stage.buffer, layout), axes=axes, place=place)


def _permuted(buffer: Buffer, layout: Layout) -> Buffer:
    return replace(buffer, shape=tuple(buffer.shape[k] for k in layout))


def _identity(buffer: Buffer) -> Layout:
    return tuple(range(len(buffer.shape)))


# --- what a stage costs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Access:
    """One load or store: sizes of the dimensions, and how each index moves along each axis of the stage."""

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    """Per dimension, the step per axis; where indices are not linear, `load` says what they are."""
    axes: int
    load: Load | None = None
    syms: tuple[Sym, ...] = ()
    is_inner: bool = False
    """Whether it happens at every point of a reduction, not once for its result."""
    packed: frozenset[int] = frozenset()
    """Axes along which it can be made contiguous beforehand."""
    is_store: bool = False
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
class _Shape:
    """All of a stage that its cost depends on: layers that repeat have equal ones."""

    extents: tuple[int, ...]
    outer: int
    """How many of the axes are not reduced."""
    is_contraction: bool
    """Whether it is a sum of products."""
    accesses: tuple[_Access, ...]
    cased: frozenset[int] = frozenset()
    """Axes whose value chooses among cases: no vectors run along them."""
    cases: int = 1
    """How many cases there are in all; neighbouring ones share their loads."""


def _cost(shape: _Shape, strides: Sequence[Strides], lanes: int) -> float:
    """Memory operations of a stage with its best axis in vectors.

    A vector is one operation: contiguous ones cost 1, or 1.5 if they straddle lines of the cache; one element for all
    lanes costs 1/2; anything else an operation per lane, or two if each lane has a line of its own. A short axis leaves
    lanes empty. Along a reduced axis the lanes must be combined in the end, and the result is stored alone; a sum of
    products, whose operands serve only one result then instead of a tile of them, pays twice.
    """
    points, results = prod(shape.extents), prod(shape.extents[: shape.outer])
    best = float(points * len(strides))
    for axis, extent in enumerate(shape.extents):
        if extent == 1 or axis in shape.cased:
            continue
        run, joined = _run(shape.extents, strides, axis, shape.outer)
        filled = run / (-(-run // lanes) * lanes) if run else 1.0
        inner = outer = 0.0
        for access, row in zip(shape.accesses, strides, strict=True):
            price = _price(access, row, axis, joined, lanes)
            price = price if access.is_store else price * access.times / shape.cases
            inner, outer = (inner + price, outer) if access.is_inner else (inner, outer + price)
        if axis < shape.outer:
            total = (outer * results + inner * points) / filled
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


def _price(access: _Access, strides: Strides, axis: int, joined: set[int], lanes: int) -> float:
    stride = strides[axis]
    if stride == 0:
        return 0.5 / lanes
    if axis in access.packed:
        return 1.0 / lanes
    if stride != 1:
        return 1.0 if stride is not None and abs(stride) < LINE_ELEMENTS else 2.0
    others = (step for number, step in enumerate(strides) if number not in joined)
    is_aligned = all(step is not None and step % lanes == 0 for step in others)
    return (1.0 if is_aligned else 1.5) / lanes


# --- what is known of a stage --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """A stage as the search sees it: the buffer of each access by number, and what each of its indices depends on."""

    buffers: tuple[int, ...]
    shape: int
    """The number of its `_Shape`."""
    depends: tuple[tuple[frozenset[int], ...], ...]
    """Per access and dimension, the axes that are not reduced and on which the index depends."""


def _fused_reductions(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> dict[Buffer, TensorStage]:
    """Reductions that only one stage reads, each at its own point: both run in one nest, and nothing is stored between.

    Keyed by what that stage stores. Its axes stand for those of the reduction, and so does its order of dimensions.
    """
    readers: dict[Buffer, dict[int, None]] = {}
    for number, stage in enumerate(stages):
        for load in loads_in(stage.body):
            assert isinstance(load.source, Buffer)
            readers.setdefault(load.source, {})[number] = None
    fused: dict[Buffer, TensorStage] = {}
    for stage in stages:
        reading = list(readers.get(stage.buffer, ()))
        if stage.reduction is None or stage.buffer in kept or len(reading) != 1:
            continue
        reader = stages[reading[0]]
        same = all(load.indices == reader.place for load in loads_in(reader.body) if load.source == stage.buffer)
        extents = tuple(axis.extent for axis in reader.axes) == tuple(axis.extent for axis in stage.axes)
        whole = _is_whole(stage) and _is_whole(reader)
        if same and extents and whole and reader.reduction is None and reader.buffer not in fused:
            fused[reader.buffer] = stage
    return fused


def _is_whole(stage: TensorStage) -> bool:
    return stage.place == tuple(axis.sym for axis in stage.axes)


@dataclass(frozen=True, slots=True)
class _Nest:
    """A stage, with the reduction that it reads if they are fused, over one set of axes."""

    axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    outer: tuple[Load, ...]
    """What is stored and loaded once per point of the axes, written as loads."""
    inner: tuple[Load, ...]
    """What is loaded at every point of the reduction."""
    is_contraction: bool
    periods: Mapping[Sym, int] = field(default_factory=dict[Sym, int])
    """How many cases the value of an axis chooses among."""
    times: Mapping[Load, int] = field(default_factory=dict[Load, int])
    """How often there is a load that moves like one, if not once."""


def _nest(stage: TensorStage, reduction: TensorStage | None) -> _Nest:
    store = Load(stage.buffer, stage.place, stage.buffer.dtype)
    loads = tuple(dict.fromkeys(loads_in(stage.body)))
    source = stage if reduction is None else reduction
    is_contraction = source.reduction == "sum" and _is_product(source.body)
    if reduction is None:
        if stage.reduction is not None:
            return _Nest(stage.axes, stage.reduction_axes, (store,), loads, is_contraction)
        times = Counter(map(at_origin, loads))
        return _Nest(stage.axes, (), (store, *times), (), is_contraction, case_periods(stage.body, stage.axes), times)
    names: dict[Sym, Dim] = {own.sym: axis.sym for own, axis in zip(reduction.axes, stage.axes, strict=True)}
    inner = tuple(dict.fromkeys(loads_in(substitute_scalar(reduction.body, names))))
    outer = (store, *(load for load in loads if load.source != reduction.buffer))
    return _Nest(stage.axes, reduction.reduction_axes, outer, inner, is_contraction)


def _shape_of(nest: _Nest, constants: frozenset[str]) -> _Shape:
    axes = (*nest.axes, *nest.reduction_axes)
    numbers = {axis.sym: number for number, axis in enumerate(axes)}
    may_pack = nest.is_contraction and all(isinstance(axis.extent, int) for axis in axes)
    accesses = [
        replace(_access(load, numbers, False, frozenset()), times=nest.times.get(load, 1)) for load in nest.outer
    ]
    for load in nest.inner:
        is_packed = may_pack and isinstance(load.source, Buffer) and load.source.name in constants
        accesses.append(_access(load, numbers, True, _lone_axes(load, numbers) if is_packed else frozenset()))
    accesses[0] = replace(accesses[0], is_store=True)
    extents = tuple(_nominal(axis.extent) for axis in axes)
    cased = frozenset(numbers[sym] for sym in nest.periods)
    return _Shape(extents, len(nest.axes), nest.is_contraction, tuple(accesses), cased, prod(nest.periods.values()))


def _lone_axes(load: Load, numbers: Mapping[Sym, int]) -> frozenset[int]:
    """Axes that are an index by themselves and occur in no other: what `schedule.pack` can put innermost.

    It packs constants of sums of products whose sizes are known.
    """
    plain = [index for index in load.indices if isinstance(index, (int, expr.Expr))]
    used = [sym for index in plain for sym in expr.symbols(index)]
    return frozenset(numbers[index] for index in plain if isinstance(index, Sym) and used.count(index) == 1)


def _is_product(scalar: Scalar) -> bool:
    match scalar:
        case Cast(value):
            return _is_product(value)
        case Apply("mul", _):
            return True
        case _:
            return False


def _access(load: Load, numbers: Mapping[Sym, int], is_inner: bool, packed: frozenset[int]) -> _Access:
    assert isinstance(load.source, Buffer)
    shape = tuple(map(_nominal, load.source.shape))
    steps: list[tuple[int, ...]] = []
    for index in load.indices:
        linear = _steps(index, numbers) if isinstance(index, (int, expr.Expr)) else None
        if linear is None:
            return _Access(shape, (), len(numbers), load, tuple(numbers), is_inner, packed)
        steps.append(linear)
    return _Access(shape, tuple(steps), len(numbers), is_inner=is_inner, packed=packed)


def _steps(index: Dim, numbers: Mapping[Sym, int]) -> tuple[int, ...] | None:
    row = [0] * len(numbers)
    for monomial, coefficient in expr.terms_of(index):
        if len(monomial) == 1 and isinstance(monomial[0], Sym) and monomial[0] in numbers:
            row[numbers[monomial[0]]] = coefficient
        elif any(sym in numbers for atom in monomial for sym in expr.symbols(atom)):
            return None
    return tuple(row)


def _depends(load: Load, axes: tuple[Axis, ...]) -> tuple[frozenset[int], ...]:
    numbers = {axis.sym: number for number, axis in enumerate(axes)}
    return tuple(
        frozenset(numbers[sym] for sym in expr.symbols(index) if sym in numbers)
        if isinstance(index, (int, expr.Expr))
        else frozenset()
        for index in load.indices
    )


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


# --- search --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    """The orders chosen so far. Buffers, stages and shapes of stages go by numbers."""

    lanes: int
    movable: frozenset[int]
    fused: dict[Buffer, TensorStage]
    buffers: list[Buffer]
    layouts: list[Layout]
    uses: list[_Use]
    shapes: list[_Shape]
    touching: list[list[int]]
    """The stages that read or write each buffer."""
    costs: dict[tuple[int, tuple[Layout, ...]], float] = field(default_factory=dict)
    strides: dict[tuple[int, int, Layout], Strides] = field(default_factory=dict)
    matches: dict[tuple[int, int, Layout], tuple[Change, ...]] = field(default_factory=dict)

    @staticmethod
    def over(stages: Sequence[TensorStage], kept: frozenset[Buffer], constants: frozenset[str], lanes: int) -> _Search:
        numbers: dict[Buffer, int] = {}
        shapes: dict[_Shape, int] = {}
        uses: list[_Use] = []
        touching: list[list[int]] = []
        fused = _fused_reductions(stages, kept)
        inside = {reduction.buffer for reduction in fused.values()}
        for stage in stages:
            if stage.buffer in inside:
                continue
            nest = _nest(stage, fused.get(stage.buffer))
            places = (*nest.outer, *nest.inner)
            own = tuple(numbers.setdefault(b.source, len(numbers)) for b in places if isinstance(b.source, Buffer))
            touching += [[] for _ in range(len(numbers) - len(touching))]
            for buffer in dict.fromkeys(own):
                touching[buffer].append(len(uses))
            shape = shapes.setdefault(_shape_of(nest, constants), len(shapes))
            uses.append(_Use(own, shape, tuple(_depends(load, nest.axes) for load in places)))
        fixed = inside | _normalised_rows(stages, kept)
        movable = frozenset(numbers[buffer] for buffer in _movable(stages, kept) if buffer not in fixed)
        layouts = list(map(_identity, numbers))
        return _Search(lanes, movable, fused, list(numbers), layouts, uses, list(shapes), touching)

    def found(self) -> dict[Buffer, Layout]:
        """The orders that differ from those given."""
        changed = {b: layout for b, layout in zip(self.buffers, self.layouts, strict=True) if layout != _identity(b)}
        inside = {self.fused[b].buffer: layout for b, layout in changed.items() if b in self.fused}
        return changed | inside

    def cost(self, stages: Iterable[int], changed: Mapping[int, Layout]) -> float:
        """What some stages cost with some orders changed."""
        total = 0.0
        for number in stages:
            use = self.uses[number]
            layouts = tuple([changed[b] if b in changed else self.layouts[b] for b in use.buffers])
            key = (use.shape, layouts)
            found = self.costs.get(key)
            if found is None:
                strides = [self.strides_of(use.shape, access, layout) for access, layout in enumerate(layouts)]
                found = self.costs[key] = _cost(self.shapes[use.shape], strides, self.lanes)
            total += found
        return total

    def strides_of(self, shape: int, access: int, layout: Layout) -> Strides:
        found = self.strides.get((shape, access, layout))
        if found is None:
            found = self.strides[shape, access, layout] = self.shapes[shape].accesses[access].strides(layout)
        return found

    def gain(self, changed: Mapping[int, Layout]) -> float:
        """By how much other orders lower the cost; 0 if not by enough."""
        changed = {buffer: layout for buffer, layout in changed.items() if layout != self.layouts[buffer]}
        if not changed:
            return 0.0
        touched = dict.fromkeys(number for buffer in changed for number in self.touching[buffer])
        before, after = self.cost(touched, {}), self.cost(touched, changed)
        return before - after if after < LEAST_GAIN * before else 0.0

    def adopt_best_first(self, changes: Iterable[Mapping[int, Layout]]) -> list[int]:
        """Make those changes that pay, the best first, unless one before has spoilt them; returns what they touch."""
        gains = [(gain, change) for change in changes if (gain := self.gain(change))]
        touched: list[int] = []
        for _, change in sorted(gains, key=lambda pair: -pair[0]):
            if self.gain(change):
                for buffer, layout in change.items():
                    self.layouts[buffer] = layout
                touched += change
        return touched

    def run(self) -> None:
        """From the orders as given, few changes first; and many at once, if that ends clearly better."""
        given, every = self.layouts, range(len(self.uses))
        self.layouts = list(given)
        self.move_each()
        self.move_groups()
        self.move_each()
        few = self.layouts, self.cost(every, {})
        self.layouts = list(given)
        self.move_groups()
        self.move_each()
        if self.cost(every, {}) >= CLEAR_GAIN * few[1]:
            self.layouts = few[0]

    def move_groups(self) -> None:
        """Move a dimension last in all connected buffers at once: alone, each would only be in its neighbours' way."""
        tried: set[Change] = set()
        groups: list[Mapping[int, Layout]] = []
        for buffer in sorted(self.movable):
            shape = self.buffers[buffer].shape
            for dimension in range(len(shape) - 1):
                layout = _moved_last(len(shape), frozenset({dimension}))
                if shape[dimension] != 1 and (buffer, layout) not in tried:
                    groups.append(self.group(buffer, layout))
                    tried |= set(groups[-1].items())
        self.adopt_best_first(groups)

    def group(self, buffer: int, layout: Layout) -> dict[int, Layout]:
        """The orders that match a buffer's throughout what stages connect it with, nearest first."""
        group, waiting = {buffer: layout}, deque([buffer])
        while waiting:
            current = waiting.popleft()
            for number in self.touching[current]:
                for other, matching in self.matching(number, current, group[current]):
                    if other not in group:
                        group[other] = matching
                        waiting.append(other)
        return group

    def matching(self, number: int, buffer: int, layout: Layout) -> tuple[Change, ...]:
        found = self.matches.get((number, buffer, layout))
        if found is None:
            found = self.matches[number, buffer, layout] = tuple(self._matching(self.uses[number], buffer, layout))
        return found

    def _matching(self, use: _Use, buffer: int, layout: Layout) -> Iterator[Change]:
        """Orders of the other buffers of a stage in which the same axes come first.

        What comes first, not what is moved last, is followed: a convolution shares its places with its input but not
        its channels.
        """
        shape = self.buffers[buffer].shape
        first = [k for k in layout[: _first_count(layout)] if shape[k] != 1]
        for access, own in enumerate(use.buffers):
            sources = [use.depends[access][k] for k in first] if own == buffer else []
            if not sources or not all(sources):
                continue
            axes = frozenset[int]().union(*sources)
            for other, depends in zip(use.buffers, use.depends, strict=True):
                if other == buffer or other not in self.movable:
                    continue
                dims = self.buffers[other].shape
                last = frozenset(k for k, on in enumerate(depends) if not on & axes and dims[k] != 1)
                if last:
                    yield other, _moved_last(len(dims), last)

    def move_each(self) -> None:
        """Change buffers one by one, while that pays."""
        waiting = sorted(self.movable)
        for _ in range(ROUNDS):
            touched = self.adopt_best_first(
                {buffer: layout} for buffer in waiting for layout in self.alternatives(buffer)
            )
            near = {other for b in touched for stage in self.touching[b] for other in self.uses[stage].buffers}
            waiting = sorted(near & self.movable)

    def alternatives(self, buffer: int) -> Iterable[Layout]:
        """Any one dimension last, or an order that matches that of a neighbour."""
        shape = self.buffers[buffer].shape
        found = {_identity(self.buffers[buffer]): None}
        found |= {_moved_last(len(shape), frozenset({k})): None for k, dim in enumerate(shape) if dim != 1}
        for number in self.touching[buffer]:
            for other in self.uses[number].buffers:
                if other in self.movable and other != buffer:
                    matching = self.matching(number, other, self.layouts[other])
                    found |= {layout: None for target, layout in matching if target == buffer}
        return found


def _movable(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[Buffer]:
    """Buffers that one stage here fills whole, and others here read at places that no data decides."""
    filled: dict[Buffer, int] = {}
    read: set[Buffer] = set()
    fixed = set(kept)
    for stage in stages:
        filled[stage.buffer] = filled.get(stage.buffer, 0) + 1
        if not _is_whole(stage):
            fixed.add(stage.buffer)
        for load in loads_in(stage.body):
            assert isinstance(load.source, Buffer)
            read.add(load.source)
            if not all(isinstance(index, (int, expr.Expr)) for index in load.indices):
                fixed.add(load.source)
    return [
        buffer
        for buffer, count in filled.items()
        if count == 1 and len(buffer.shape) >= 3 and buffer in read and buffer not in fixed
    ]


def _normalised_rows(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> set[Buffer]:
    """Buffers of nests that reduce rows and read the result for the same row again, rows and results.

    Such rows stay in the nearest cache as they are; a softmax along a strided axis would pass through memory.
    """
    rows: set[Buffer] = set()
    for cluster in cluster_stages(list(stages), kept):
        long = [stage for stage in cluster.stages if len(stage.axes) > cluster.depth]
        points = {stage.buffer for stage in cluster.stages if len(stage.axes) == cluster.depth}
        if any(load.source in points for stage in long for load in loads_in(stage.body)):
            rows |= {stage.buffer for stage in cluster.stages}
    return rows


def _moved_last(rank: int, last: frozenset[int]) -> Layout:
    return (*(k for k in range(rank) if k not in last), *(k for k in range(rank) if k in last))


def _first_count(layout: Layout) -> int:
    """How many places come before the dimensions moved last: those up to the last descent, or all but one."""
    descents = [place for place in range(1, len(layout)) if layout[place] < layout[place - 1]]
    return descents[-1] if descents else len(layout) - 1
