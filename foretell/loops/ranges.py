"""Ranges of tensors: what a nest reads of each, or fills, as far as its indices tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Axis, Buffer, Scalar
from foretell.loops.cluster import Cluster
from foretell.support.frozen import frozen


@frozen
class Range:
    """Indices `start` .. `start + extent - 1` of a dimension; where it starts depends on the tile."""

    start: Dim
    extent: int


def with_needs(
    needs: Mapping[Buffer, tuple[Range, ...]], reads: Mapping[Buffer, tuple[Range, ...]]
) -> dict[Buffer, tuple[Range, ...]]:
    """What is needed of each buffer, besides what is needed already."""
    found = dict(needs)
    for buffer, ranges in reads.items():
        known = found.get(buffer)
        found[buffer] = ranges if known is None else _union_of(known, ranges, buffer)
    return found


Shorter: TypeAlias = Mapping[Sym, tuple[Axis, Dim]]
"""Axes of which a part is left: for each, one that runs through that part, and where it starts."""


def moved_by(shorter: Shorter) -> dict[Sym, Dim]:
    """What axes are in terms of the shorter ones."""
    return {sym: start + axis.sym for sym, (axis, start) in shorter.items()}


def shortened(axes: Sequence[Axis], shorter: Shorter) -> tuple[Axis, ...]:
    return tuple(shorter[axis.sym][0] if axis.sym in shorter else axis for axis in axes)


def ranges_read(cluster: Cluster, shorter: Shorter) -> dict[Buffer, tuple[Range, ...]]:
    """What one run of a cluster reads of each buffer that it does not fill, at most: a range of each dimension."""
    covered = _Covered.by(cluster, shorter)
    return {
        buffer: tuple(covered.covering(each, dim) for each, dim in zip(indices, buffer.shape, strict=True))
        for buffer, indices in cluster.indices_read.items()
    }


def ranges_written(cluster: Cluster, shorter: Shorter) -> list[tuple[Range, ...]]:
    """What one run of each stage fills of its buffer."""
    covered = _Covered.by(cluster, shorter)
    return [
        tuple(covered.covering((index,), dim) for index, dim in zip(stage.place, stage.buffer.shape, strict=True))
        for stage in cluster.stages
    ]


@dataclass(frozen=True, slots=True)
class _Covered:
    """What indices go through as the loops of a cluster run; few are different, of many accesses."""

    own: frozenset[Sym]
    """Those of the loops."""
    moved: Mapping[Sym, Dim]
    known: dict[tuple[Dim, int], Range] = field(default_factory=dict[tuple[Dim, int], Range])

    @classmethod
    def by(cls, cluster: Cluster, shorter: Shorter) -> _Covered:
        own = frozenset(shorter[sym][0].sym if sym in shorter else sym for sym in cluster.symbols)
        return cls(own, moved_by(shorter))

    def covering(self, indices: Sequence[Dim | Scalar], dim: Dim) -> Range:
        """The range of a dimension that many accesses lie in."""
        assert isinstance(dim, int)
        first, *others = dict.fromkeys(self._range(index, dim) for index in indices)
        for other in others:
            first = union(first, other, dim)
        return first

    def _range(self, index: Dim | Scalar, dim: int) -> Range:
        if isinstance(index, int):
            return Range(index, 1) if dim > 1 else Range(0, dim)
        if not isinstance(index, expr.Expr):
            return Range(0, dim)
        if (index, dim) not in self.known:
            self.known[index, dim] = self._find_range(index, dim)
        return self.known[index, dim]

    def _find_range(self, index: Dim, dim: int) -> Range:
        """All of the dimension where no range can be told."""
        start, inside = expr.split(expr.substitute(index, self.moved), self.own)
        if expr.mentions(start, self.own) or expr.symbols(inside) - self.own:
            return Range(0, dim)
        low, high = expr.bounds(inside)
        if low is None or high is None or high - low + 1 >= dim:
            return Range(0, dim)
        return Range(start + low, high - low + 1)


def _union_of(left: tuple[Range, ...], right: tuple[Range, ...], buffer: Buffer) -> tuple[Range, ...]:
    return tuple(union(*pair) for pair in zip(left, right, buffer.shape, strict=True))


def union(left: Range, right: Range, dim: Dim) -> Range:
    assert isinstance(dim, int)
    apart = right.start - left.start
    if not isinstance(apart, int):
        return Range(0, dim)
    start = left.start if apart >= 0 else right.start
    extent = max(left.extent, apart + right.extent) if apart >= 0 else max(right.extent, left.extent - apart)
    return Range(start, extent) if extent < dim else Range(0, dim)


def are_apart(ranges: tuple[Range, ...], shape: Sequence[Dim], tiles: Sequence[Axis]) -> bool:
    """Whether tiles need parts of a tensor of which no two have anything in common, and which are all of it."""
    left = {axis.sym: axis.extent for axis in tiles}
    for each, dim in zip(ranges, shape, strict=True):
        if each != Range(0, each.extent) or each.extent != dim:
            found = [sym for sym in left if each.start == sym * each.extent]
            if len(found) != 1 or left.pop(found[0]) * each.extent != dim:
                return False
    return not left


@dataclass(frozen=True, slots=True)
class NewRows:
    """What a tile needs of a buffer and the tile before it does not."""

    dimension: int
    count: int
    """Indices of that dimension."""
    ranges: tuple[Range, ...]


def new_rows(ranges: tuple[Range, ...], tile: Sym) -> NewRows | None:
    """The rows that come in as ranges move on with the tile; None if they do not overlap, or not in one dimension."""
    moving = [number for number, each in enumerate(ranges) if tile in expr.symbols(each.start)]
    linear = expr.try_linear(ranges[moving[0]].start, frozenset({tile})) if len(moving) == 1 else None
    if linear is None:
        return None
    dimension, count = moving[0], linear[0][tile]
    start, extent = ranges[dimension].start, ranges[dimension].extent
    if not 0 < count < extent:
        return None
    new = Range(start + extent - count, count)
    return NewRows(dimension, count, (*ranges[:dimension], new, *ranges[dimension + 1 :]))
