"""A cluster cut down to what a tile needs of its results: a range of each of its axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Index, Scalar
from foretell.loops.cluster import Cluster
from foretell.loops.nodes import Substituted, substitute_scalar
from foretell.loops.ranges import Range, Shorter, moved_by, ranges_read, shortened, union
from foretell.loops.stages import TensorStage

UNKNOWN = 1 << 62
"""The extent of a range that nobody can tell."""


@dataclass(frozen=True)
class Restricted:
    """A cluster on ranges of its axes, and where it runs."""

    whole: Cluster
    shorter: Shorter = field(default_factory=dict[Sym, tuple[Axis, Dim]])
    condition: Scalar | None = None
    place: int = 0
    """How many clusters come after it."""
    part: int | None = None
    """Which of the stages it is, if each of the cluster's is restricted in its own way."""
    later: Restricted | None = None
    """What is left of it in a tile if what the tile before has computed is still there."""

    @cached_property
    def cluster(self) -> Cluster:
        """The stages with axes replaced by shorter ones that begin elsewhere.

        Many tilings are looked at for each that is taken, and most that is asked of one can be told without.
        """
        if not self.shorter:
            return self.whole
        moved, done = moved_by(self.shorter), Substituted()
        stages: list[TensorStage] = []
        for stage in self.whole.stages:
            axes = shortened(stage.axes, self.shorter)
            place = tuple(expr.substitute(index, moved) for index in stage.place)
            stages.append(replace(stage, axes=axes, place=place, body=substitute_scalar(stage.body, moved, done)))
        return Cluster(tuple(stages), self.whole.depth)

    @cached_property
    def reads(self) -> Mapping[Buffer, tuple[Range, ...]]:
        """What it reads of buffers that it does not fill."""
        return ranges_read(self.whole, self.shorter)

    @property
    def extents(self) -> tuple[tuple[int, int], ...]:
        """Of the axes of the whole cluster that are cut down, by number."""
        axes = [self.shorter[axis.sym][0] if axis.sym in self.shorter else None for axis in self.whole.stages[0].axes]
        found = {number: axis.extent for number, axis in enumerate(axes) if axis is not None}
        return tuple((number, extent) for number, extent in found.items() if isinstance(extent, int))


def restrict(cluster: Cluster, needs: Mapping[Buffer, tuple[Range, ...]]) -> Restricted:
    """A cluster that fills what is needed, and where tiles at the ends need less, the same number of neighbours.

    A range that begins before an axis, or ends after it, is moved inside: all tiles run loops of one size.
    """
    shorter: dict[Sym, tuple[Axis, Dim]] = {}
    conditions: list[Scalar] = []
    for number, axis in enumerate(cluster.stages[0].axes[: cluster.depth]):
        found = _needed(number, cluster, needs)
        if found is None or not isinstance(axis.extent, int):
            continue
        extent = min(found.extent, axis.extent)
        conditions += _conditions(found, axis.extent)
        if extent < axis.extent:
            start = expr.maximum(0, expr.minimum(found.start, axis.extent - extent))
            shorter[axis.sym] = (Axis(Sym(axis.sym.name, 0, extent - 1), extent), start)
    condition = None
    for each in conditions:
        condition = each if condition is None else Apply("and", (condition, each))
    return Restricted(cluster, shorter, condition)


def needed_parts(cluster: Cluster, needs: Mapping[Buffer, tuple[Range, ...]]) -> tuple[Cluster, ...]:
    """Stages that fill parts of one buffer, by themselves where a tile needs each in a range of its own."""
    if len(cluster.parts) == 1:
        return (cluster,)
    alike = {each.spans: each for each in cluster.parts}
    found = [[_needed(number, each, needs) for number in range(each.depth)] for each in alike.values()]
    inner = [ranges[cluster.depth :] for ranges in found]
    is_alike = all(ranges == found[0] for ranges in found) and not any(any(ranges) for ranges in inner)
    return (cluster,) if is_alike else cluster.parts


def _needed(number: int, cluster: Cluster, needs: Mapping[Buffer, tuple[Range, ...]]) -> Range | None:
    """The range of an axis whose points are needed; None for all of it."""
    found: Range | None = None
    for span in cluster.spans[number]:
        if span.buffer not in needs:
            continue
        needed = needs[span.buffer][span.dimension]
        if span.shift is None or needed.extent == span.buffer.shape[span.dimension]:
            return None
        moved = Range(needed.start - span.shift, needed.extent)
        found = moved if found is None else union(found, moved, UNKNOWN)
        if found.extent >= UNKNOWN:
            return None
    return found


def _conditions(needed: Range, extent: int) -> Iterator[Scalar]:
    """Where a range meets an axis at all: not asked where it always does."""
    low, high = expr.bounds(needed.start)
    if high is None or high >= extent:
        yield Apply("lt", (Index(needed.start), Index(extent)))
    if low is None or low + needed.extent <= 0:
        yield Apply("ge", (Index(needed.start), Index(1 - needed.extent)))
