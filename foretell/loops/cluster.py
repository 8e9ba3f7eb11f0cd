"""Which stages share one loop nest: neighbours that agree on their outer axes, where that costs no cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Load, Scalar
from foretell.loops.axes import stride_along
from foretell.loops.fingerprint import Fingerprint, fingerprint
from foretell.loops.nodes import distinct_loads, scalar_symbols, substitute_scalar
from foretell.loops.stages import TensorStage, is_sum_of_products

STACK_BYTES = 64 << 10
"""The largest temporary that a kernel keeps on its stack."""
REREAD_BYTES = 64 << 10
"""The most that stages sharing outer loops may read again in each iteration: it should stay in the nearest caches."""
LEAST_PARALLEL = 16
"""Outer iterations that make sharing outer loops worth while; fewer would starve the threads."""


@dataclass(frozen=True, slots=True)
class Span:
    """A dimension of a buffer that an axis runs along."""

    buffer: Buffer
    dimension: int
    shift: int | None
    """Points are stored so much further on; None if they are not just moved."""


@dataclass(frozen=True)
class Cluster:
    """Stages that share a loop nest. What is asked of it often, and depends on nothing else, is found once."""

    stages: tuple[TensorStage, ...]
    depth: int
    """Outer axes that all stages share."""

    @cached_property
    def loads(self) -> list[Load]:
        """What the stages read, each object once."""
        return distinct_loads([stage.body for stage in self.stages])

    @cached_property
    def buffers(self) -> frozenset[Buffer]:
        """What the stages fill."""
        return frozenset(stage.buffer for stage in self.stages)

    @cached_property
    def symbols(self) -> frozenset[Sym]:
        """Those of all axes."""
        return frozenset(axis.sym for stage in self.stages for axis in (*stage.axes, *stage.reduction_axes))

    @cached_property
    def indices_read(self) -> Mapping[Buffer, tuple[tuple[Dim | Scalar, ...], ...]]:
        """For each buffer that the stages read and do not fill, different indices of each dimension; of those that
        differ by numbers, the least and the greatest."""
        places: dict[Buffer, list[tuple[Dim | Scalar, ...]]] = {}
        for load in self.loads:
            assert isinstance(load.source, Buffer)
            if load.source not in self.buffers:
                places.setdefault(load.source, []).append(load.indices)
        return {
            buffer: tuple(tuple(_outermost(dict.fromkeys(column))) for column in zip(*indices, strict=True))
            for buffer, indices in places.items()
        }

    @cached_property
    def read_by_data(self) -> frozenset[Buffer]:
        """Buffers of which data decides what is read."""
        found = self.indices_read.items()
        return frozenset(
            b for b, columns in found if any(not isinstance(i, (int, expr.Expr)) for c in columns for i in c)
        )

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """For each shared axis, named alike in all stages, what it runs along."""
        return tuple(tuple(dict.fromkeys(self._spans(axis.sym))) for axis in self.stages[0].axes[: self.depth])

    def _spans(self, sym: Sym) -> Iterator[Span]:
        for stage in self.stages:
            for number, index in enumerate(stage.place):
                if expr.mentions(index, {sym}):
                    shift = index - sym
                    yield Span(stage.buffer, number, shift if isinstance(shift, int) else None)

    @cached_property
    def parts(self) -> tuple[Cluster, ...]:
        """The stages by themselves if they fill parts of one buffer and read none of it; else all together."""
        are_parts = len(self.stages) > 1 and len(self.buffers) == 1
        if not are_parts or any(load.source in self.buffers for load in self.loads):
            return (self,)
        return tuple(Cluster((stage,), len(stage.axes)) for stage in self.unified.stages)

    @cached_property
    def has_rows(self) -> bool:
        """Whether a stage has axes of its own, inside those that all share."""
        return any(len(stage.axes) > self.depth for stage in self.stages)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What it does, whatever its buffers and axes are called."""
        return fingerprint(self.unified.stages, self.depth, self.loads)

    @cached_property
    def unified(self) -> Cluster:
        """The same with shared axes named alike."""
        first = self.stages[0]
        if all(stage.axes[: self.depth] == first.axes[: self.depth] for stage in self.stages):
            return self
        unified: list[TensorStage] = []
        for stage in self.stages:
            bindings: dict[Sym, Dim] = {
                own.sym: shared.sym
                for own, shared in zip(stage.axes, first.axes[: self.depth], strict=False)
                if own.sym != shared.sym
            }
            axes = first.axes[: self.depth] + stage.axes[self.depth :]
            place = tuple(expr.substitute(index, bindings) for index in stage.place)
            unified.append(replace(stage, axes=axes, place=place, body=substitute_scalar(stage.body, bindings)))
        return Cluster(tuple(unified), self.depth)


def _outermost(indices: Iterable[Dim | Scalar]) -> Iterator[Dim | Scalar]:
    """Indices that come from data; of the others that differ by numbers, the least and the greatest."""
    constants: dict[Dim, list[int]] = {}
    for index in indices:
        if isinstance(index, (int, expr.Expr)):
            constants.setdefault(expr.without_constant(index), []).append(expr.constant_term(index))
        else:
            yield index
    for rest, found in constants.items():
        yield from (rest + constant for constant in dict.fromkeys((min(found), max(found))))


def cluster_stages(stages: list[TensorStage], kept: frozenset[Buffer]) -> list[Cluster]:
    """Greedy runs of stages; a stage joins the run before it if they share enough outer iterations."""
    clusters: list[Cluster] = []
    for stage in stages:
        if clusters:
            joined = (*clusters[-1].stages, stage)
            depth = len(stage.axes) if _is_another_part(stage, clusters[-1]) else shared_depth(joined, kept)
            if depth:
                clusters[-1] = Cluster(joined, depth)
                continue
        clusters.append(Cluster((stage,), len(stage.axes)))
    return clusters


def _is_another_part(stage: TensorStage, cluster: Cluster) -> bool:
    """Whether a stage fills a part of the buffer that the last stage of a cluster fills, in the same loops.

    What `shared_depth` would say too, without looking at all stages again: there may be many parts.
    """
    last = cluster.stages[-1]
    if stage.buffer != last.buffer or cluster.depth != len(stage.axes) or len(last.axes) != cluster.depth:
        return False
    if any(other.reduction is not None for other in (*cluster.stages, stage)):
        return False
    if any(own.extent != other.extent for own, other in zip(stage.axes, last.axes, strict=True)):
        return False
    written = {other.buffer for other in cluster.stages}
    return all(load.source not in written for load in stage.loads)


def shared_depth(stages: tuple[TensorStage, ...], kept: frozenset[Buffer]) -> int:
    """How many outer loops the stages should share; 0 if they had better stay apart."""
    depth = _common_depth(stages)
    return depth if depth and _is_worth_sharing(stages, depth, kept) else 0


def _common_depth(stages: tuple[TensorStage, ...]) -> int:
    """The number of leading axes on which all stages agree and read one another at the same point.

    A stage that fills a part of its buffer shares all of its axes, or outer ones with the other parts, or none: it
    knows nothing of the rows beside it.
    """
    depth = min(len(stage.axes) for stage in stages)
    for position in range(depth):
        if len({stage.axes[position].extent for stage in stages}) != 1:
            depth = position
            break
    writers: dict[Buffer, list[TensorStage]] = {}
    for stage in stages:
        writers.setdefault(stage.buffer, []).append(stage)
    for stage in stages:
        for load in stage.loads:
            assert isinstance(load.source, Buffer)
            for writer in writers.get(load.source, ()):
                depth = min(depth, _same_indices(load, stage, writer))
    whole = all(depth == len(stage.axes) for stage in stages)
    is_split = len(writers) < len(stages)
    if is_split and any(stage.reduction is not None for stage in stages):
        return 0  # One reduction per place: what schedules its loops does not look for parts that never meet.
    in_parts = is_split or any(_fills_a_part(stage) for stage in stages)
    are_parts_of_one = len(writers) == 1 and all(_starts_with_its_axes(stage, depth) for stage in stages)
    return 0 if in_parts and not whole and not are_parts_of_one else depth


def _starts_with_its_axes(stage: TensorStage, depth: int) -> bool:
    outer = stage.axes[:depth]
    starts = all(index == axis.sym for index, axis in zip(stage.place, outer, strict=False))
    return starts and all(axis.extent == dim for axis, dim in zip(outer, stage.buffer.shape, strict=False))


def _same_indices(load: Load, reader: TensorStage, writer: TensorStage) -> int:
    """How many leading indices of a load are those at which the writer stores in the same iteration."""
    bindings: dict[Sym, Dim] = {
        own.sym: other.sym for own, other in zip(writer.axes, reader.axes, strict=False) if own.sym != other.sym
    }
    same = (index == expr.substitute(place, bindings) for index, place in zip(load.indices, writer.place, strict=True))
    return [*same, False].index(False)


def _fills_a_part(stage: TensorStage) -> bool:
    if any(index != axis.sym for index, axis in zip(stage.place, stage.axes, strict=True)):
        return True
    return any(_is_less(axis.extent, dim) for axis, dim in zip(stage.axes, stage.buffer.shape, strict=True))


def _is_less(extent: Dim, dim: Dim) -> bool:
    low, _ = expr.bounds(dim - extent)
    return low is not None and low > 0


def _is_worth_sharing(stages: tuple[TensorStage, ...], depth: int, kept: frozenset[Buffer]) -> bool:
    whole = all(depth == len(stage.axes) for stage in stages)
    if any(map(is_sum_of_products, stages)):
        return whole and sum(stage.reduction is not None for stage in stages) == 1
    if whole:
        return True
    outer = expr.product(tuple(axis.extent for axis in stages[0].axes[:depth]))
    if isinstance(outer, int) and outer < LEAST_PARALLEL:
        return False
    if any(_reread_bytes(load, stage, depth) > REREAD_BYTES for stage in stages for load in stage.loads):
        return False
    if any(_transposes(stage, depth) for stage in stages):
        return False
    return all(_fits_the_stack(stage, depth) for stage in stages if stage.buffer not in kept)


def _reread_bytes(load: Load, stage: TensorStage, depth: int) -> int:
    """What each iteration of a shared loop reads again: the weights of a matrix product, not the row it works on."""
    used = frozenset(sym for index in load.indices for sym in _index_symbols(index))
    if all(axis.sym in used or axis.extent == 1 for axis in stage.axes[:depth]):
        return 0
    inner = [axis.extent for axis in (*stage.axes[depth:], *stage.reduction_axes) if axis.sym in used]
    return prod(extent for extent in inner if isinstance(extent, int)) * load.dtype.itemsize


def _transposes(stage: TensorStage, depth: int) -> bool:
    """Whether a stage stores along its own axes what lies along shared ones: alone, it transposes blocks."""
    along = [axis.sym for axis in stage.axes[depth:] if stride_along(stage.buffer, stage.place, axis.sym) == 1]
    shared = [axis.sym for axis in stage.axes[:depth] if axis.extent != 1]
    for load in stage.loads if along else ():
        assert isinstance(load.source, Buffer)
        strides = [stride_along(load.source, load.indices, sym) for sym in (*along, *shared)]
        if 1 in strides[len(along) :] and 0 not in strides[: len(along)]:
            return True
    return False


def _index_symbols(index: Dim | Scalar) -> frozenset[Sym]:
    return expr.symbols(index) if isinstance(index, (int, expr.Expr)) else scalar_symbols(index)


def _fits_the_stack(stage: TensorStage, depth: int) -> bool:
    sizes = [axis.extent for axis in stage.axes[depth:]]
    if not all(isinstance(size, int) for size in sizes):
        return False
    return prod(int(size) for size in sizes if isinstance(size, int)) * stage.buffer.dtype.itemsize <= STACK_BYTES
