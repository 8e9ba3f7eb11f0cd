"""Physical orders of dimensions: intermediate tensors are stored so that vectors run along memory.

A convolution is best computed with its output channels in vectors, and pools and depthwise convolutions with their
channels; between them tensors are then stored as [n, h, w, c]. Nothing here knows of channels: the orders follow from
how stages address their operands, and from what that costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.tensor_expr import Axis, Buffer, Load
from foretell.loops.cluster import cluster_stages
from foretell.loops.detach_edges import Detached, attach_edges, detach_edges
from foretell.loops.layout_cost import Layout, StageShape, Strides, nest_of, shape_of, stage_cost
from foretell.loops.nodes import map_loads
from foretell.loops.stages import TensorStage
from foretell.loops.widen_buffers import wide_shapes

Change: TypeAlias = tuple[int, Layout]
"""A buffer by number, and the order it should get."""

LEAST_GAIN = 0.999
"""A change must bring the cost below this fraction: what makes no difference stays as it is."""
CLEAR_GAIN = 0.995
"""A search that moves more tensors must end below this fraction of one that moves few."""
ROUNDS = 4
"""How often all tensors are looked at again."""


def choose_layouts(
    stages: Sequence[TensorStage], kept: frozenset[Buffer], constants: frozenset[str], lanes: int
) -> list[TensorStage]:
    """Store intermediate tensors in the order of dimensions that makes their stages cheapest.

    before: s[n, o, h, w] = sum[c, i, j] x[n, c, h+i, w+j] * k[o, c, i, j];   y[n, o, h, w] = max(s[n, o, h, w], 0)
    after:  s[n, h, w, o] = sum[c, i, j] x[n, h+i, w+j, c] * k[o, c, i, j];   y[n, h, w, o] = max(s[n, h, w, o], 0)

    The cost of a stage, together with the reduction that it finishes, is its points times the memory operations of
    each, with its best axis in vectors of `lanes` (see `stage_cost`). From the order as given, tensors change one by
    one while that pays, and a dimension is moved last in all tensors that stages connect, where that pays as a whole.
    The search is greedy: no optimum is promised. Tensors that are visible outside (`kept`) and inputs stay as they are;
    copies transpose them where that pays too.

    Declines for constants, tensors stored in parts, those of which data decides what is read, and rows that a softmax
    or the like normalises in one nest.
    """
    detached = detach_edges(stages, kept, constants)
    search = _Search.over(detached, kept, constants, lanes)
    if not search.movable:
        return list(stages)
    search.run()
    layouts = search.found()
    return attach_edges([_stored_as(stage, layouts) for stage in detached.stages], detached)


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


# --- what is known of a stage ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """A stage as the search sees it: the buffer of each access by number, and what each of its indices depends on."""

    buffers: tuple[int, ...]
    shape: int
    """The number of its `StageShape`."""
    depends: tuple[tuple[frozenset[int], ...], ...]
    """Per access and dimension, the axes that are not reduced and on which the index depends."""


def _fused_reductions(detached: Detached, kept: frozenset[Buffer]) -> dict[Buffer, TensorStage]:
    """Reductions that only one stage reads, each at its own point: both run in one nest, and nothing is stored between.

    Keyed by what that stage stores. Its axes stand for those of the reduction, and so does its order of dimensions.
    Copies at the edges are apart, so that they can transpose.
    """
    stages = detached.stages
    readers: dict[Buffer, dict[int, None]] = {}
    for number, stage in enumerate(stages):
        for load in stage.loads:
            assert isinstance(load.source, Buffer)
            readers.setdefault(load.source, {})[number] = None
    fused: dict[Buffer, TensorStage] = {}
    for stage in stages:
        reading = list(readers.get(stage.buffer, ()))
        if stage.reduction is None or stage.buffer in kept or len(reading) != 1:
            continue
        reader = stages[reading[0]]
        reads = [load for load in reader.loads if load.source == stage.buffer]
        same = all(load.indices == reader.place for load in reads)
        extents = tuple(axis.extent for axis in reader.axes) == tuple(axis.extent for axis in stage.axes)
        whole = stage.is_whole and reader.is_whole
        is_free = reader.reduction is None and reader.buffer not in fused and not detached.is_edge(reader)
        if same and extents and whole and is_free:
            fused[reader.buffer] = stage
    return fused


def _depends(load: Load, axes: tuple[Axis, ...]) -> tuple[frozenset[int], ...]:
    numbers = {axis.sym: number for number, axis in enumerate(axes)}
    return tuple(
        frozenset(numbers[sym] for sym in expr.symbols(index) if sym in numbers)
        if isinstance(index, (int, expr.Expr))
        else frozenset()
        for index in load.indices
    )


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
    shapes: list[StageShape]
    touching: list[list[int]]
    """The stages that read or write each buffer."""
    costs: dict[tuple[int, tuple[Layout, ...]], float] = field(default_factory=dict)
    strides: dict[tuple[int, int, Layout], Strides] = field(default_factory=dict)
    matches: dict[tuple[int, int, Layout], tuple[Change, ...]] = field(default_factory=dict)

    @staticmethod
    def over(detached: Detached, kept: frozenset[Buffer], constants: frozenset[str], lanes: int) -> _Search:
        stages = detached.stages
        numbers: dict[Buffer, int] = {}
        shapes: dict[StageShape, int] = {}
        uses: list[_Use] = []
        touching: list[list[int]] = []
        fused = _fused_reductions(detached, kept)
        inside = {reduction.buffer for reduction in fused.values()}
        wide = {b: shape for b, shape in wide_shapes(stages, kept).items() if b.name not in detached.inputs}
        for stage in stages:
            if stage.buffer in inside:
                continue
            nest = nest_of(stage, fused.get(stage.buffer))
            places = (*nest.outer, *nest.inner)
            own = tuple(numbers.setdefault(b.source, len(numbers)) for b in places if isinstance(b.source, Buffer))
            touching += [[] for _ in range(len(numbers) - len(touching))]
            for buffer in dict.fromkeys(own):
                touching[buffer].append(len(uses))
            shape = shapes.setdefault(shape_of(nest, constants, detached.is_edge(stage), wide), len(shapes))
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
                found = self.costs[key] = stage_cost(self.shapes[use.shape], strides, self.lanes)
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
        if not stage.is_whole:
            fixed.add(stage.buffer)
        for load in stage.loads:
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
        if any(load.source in points for stage in long for load in stage.loads):
            rows |= {stage.buffer for stage in cluster.stages}
    return rows


def _moved_last(rank: int, last: frozenset[int]) -> Layout:
    return (*(k for k in range(rank) if k not in last), *(k for k in range(rank) if k in last))


def _first_count(layout: Layout) -> int:
    """How many places come before the dimensions moved last: those up to the last descent, or all but one."""
    descents = [place for place in range(1, len(layout)) if layout[place] < layout[place - 1]]
    return descents[-1] if descents else len(layout) - 1
