"""Several nests as one, tile by tile: a tile of the last nest, and before it what that tile needs of the others.

    before: for i < 56: t[i] = A(i);                       for i < 56: y[i] = B(t[i], t[i + 1], t[i + 2])
    after:  for p < 7:  for i < 10: s[i] = A(8*p + i);     for i < 8: y[8*p + i] = B(s[i], s[i + 1], s[i + 2])

What a tile needs follows from the indices of loads alone: a range of each axis, or all of an axis where no range can be
told. What lies between the nests lives on the stack of the thread that runs the tile.

Ranges of neighbouring tiles may overlap. What is in both is computed twice, unless one thread runs several tiles in
turn: then it is moved to where the next tile looks for it, and only what is new is computed (`steps`). What others read
besides is a tensor in memory as before, and read again while it is near (`kept`): if no two tiles fill the same of it.

    for p < 2: for q < 4:  if q < 1:  for i < 10: s[i] = A(32*p + i)
                           if q >= 1: for i < 2: s[i] = s[i + 8];     for i < 8: s[i + 2] = A(32*p + 8*q + i + 2)
                           for i < 8: y[32*p + 8*q + i] = B(s[i], s[i + 1], s[i + 2])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Index, Load, Scalar
from foretell.loops.cluster import Cluster
from foretell.loops.nodes import Done, distinct_loads, map_loads
from foretell.loops.ranges import Range, are_apart, new_rows, with_needs
from foretell.loops.restrict import Restricted, needed_parts, restrict
from foretell.loops.rows_in_place import rows_in_place
from foretell.loops.stages import TensorStage

MOST_TILES = 4096
"""Tiles of one axis whose ranges are looked at one by one."""
EACH, FIRST, LATER = "each", "first", "later"


@dataclass(frozen=True, slots=True)
class Member:
    """One nest of a fused kernel, cut down to what a tile needs; it runs where the condition holds."""

    cluster: Cluster
    condition: Scalar | None
    phase: str = EACH
    """Whether it runs in each of the tiles that a thread runs in turn, in the first one, or in the later ones."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows of a buffer, indices of one of its dimensions, that the next tile finds elsewhere."""

    buffer: Buffer
    dimension: int
    rows: Range
    """As the next tile sees them."""
    by: int
    """They are so much further on in the tile before."""


@dataclass(frozen=True, slots=True)
class Fused:
    """Nests that run for each tile in turn. Buffers between them are called tables here, like any operand."""

    tiles: tuple[Axis, ...]
    members: tuple[Member, ...]
    between: tuple[Buffer, ...]
    in_place: Mapping[Buffer, Buffer]
    """Those that are stored in the place of another one."""
    steps: int = 1
    """Tiles along the last axis that one thread runs in turn."""
    moved: tuple[Moved, ...] = ()
    kept: tuple[Buffer, ...] = ()
    """Tensors in memory that nests fill before the last one, and others read."""

    @property
    def tile_count(self) -> int:
        return prod(int(axis.extent) for axis in self.tiles if isinstance(axis.extent, int))

    @property
    def between_bytes(self) -> int:
        """What a thread keeps of the buffers between the nests."""
        own = [buffer for buffer in self.between if buffer not in self.in_place]
        sizes = (prod(dim for dim in buffer.shape if isinstance(dim, int)) for buffer in own)
        return sum(size * buffer.dtype.itemsize for size, buffer in zip(sizes, own, strict=True))


@dataclass(frozen=True)
class Tiling:
    """Clusters cut down to what a tile of the last one needs, from some cluster on; those before it may be added."""

    tiles: tuple[Axis, ...]
    restricted: tuple[Restricted, ...]
    """In reverse order."""
    needs: Mapping[Buffer, tuple[Range, ...]]
    """What they read of each buffer."""
    steps: int = 1
    """Tiles along the last axis that one thread runs in turn."""
    kept: frozenset[Buffer] = frozenset()
    """Buffers that others read besides."""

    def with_cluster(self, cluster: Cluster) -> Tiling | None:
        """With one more before them, all of whose results they read; None if they do not."""
        needs, added = self.needs, list(self.restricted)
        if any(cluster.buffers & each.whole.read_by_data for each in self.restricted):
            return None
        if any(stage.buffer in self.kept and not self._fills_once(stage, cluster) for stage in cluster.stages):
            return None
        parts = needed_parts(cluster, needs)
        for number, part in reversed(list(enumerate(parts))):
            if any(stage.buffer not in needs and _is_visible(stage, part) for stage in part.stages):
                return None
            whole = part.unified
            restricted = replace(
                restrict(whole, needs),
                place=self.restricted[-1].place + 1,
                part=number if len(parts) > 1 else None,
            )
            restricted = replace(restricted, later=self._later(whole, restricted, needs))
            added.append(restricted)
            needs = with_needs(needs, restricted.reads)
        return replace(self, restricted=tuple(added), needs=needs)

    def _fills_once(self, stage: TensorStage, cluster: Cluster) -> bool:
        """Whether each tile fills what it needs of a buffer, no other tile the same, and nobody else any of it."""
        ranges = self.needs.get(stage.buffer)
        if ranges is None or not stage.is_whole or not are_apart(ranges, stage.buffer.shape, self.tiles):
            return False
        inner = zip(ranges[cluster.depth :], stage.buffer.shape[cluster.depth :], strict=True)
        return all(each.extent == dim for each, dim in inner)

    def _later(
        self, cluster: Cluster, restricted: Restricted, needs: Mapping[Buffer, tuple[Range, ...]]
    ) -> Restricted | None:
        """What is left of a cluster, all of whose results are in the tile before but for some new rows."""
        filled = [buffer for buffer in cluster.buffers if buffer in needs]
        if self.steps == 1 or len(filled) != 1:
            return None
        new = new_rows(needs[filled[0]], self.tiles[-1].sym)
        if new is None:
            return None
        left = restrict(cluster, {**needs, filled[0]: new.ranges})
        return replace(left, place=restricted.place, part=restricted.part)

    @property
    def tile_count(self) -> int:
        return prod(int(axis.extent) for axis in self.tiles if isinstance(axis.extent, int))

    @cached_property
    def moved(self) -> frozenset[Buffer]:
        """Buffers of which a tile finds a part where the tile before has left it: all that fill them know how."""
        if self.steps == 1:
            return frozenset()
        writers = [(buffer, each.later) for each in self.restricted[1:] for buffer in each.whole.buffers]
        able = {buffer for buffer, later in writers if later is not None and buffer in self.needs}
        return self.between & able - {buffer for buffer, later in writers if later is None}

    @property
    def moved_bytes(self) -> int:
        """What a tile finds of them."""
        total = 0
        for buffer in self.moved:
            new = new_rows(self.needs[buffer], self.tiles[-1].sym)
            assert new is not None
            points, fresh = (prod(each.extent for each in ranges) for ranges in (self.needs[buffer], new.ranges))
            total += (points - fresh) * buffer.dtype.itemsize
        return total

    def runs(self) -> Iterator[tuple[Restricted, str]]:
        """The clusters in order, and in which of the tiles that a thread runs in turn they run."""
        moved = self.moved
        for each in self.restricted[::-1]:
            if each.later is not None and each.whole.buffers & moved:
                yield each, FIRST
                yield each.later, LATER
            else:
                yield each, EACH

    @cached_property
    def between(self) -> frozenset[Buffer]:
        """Buffers that all but the last cluster fill, and nobody else reads."""
        between = self._filled_before - self.restricted[0].whole.buffers - self.kept
        return frozenset(buffer for buffer in between if buffer in self.needs)

    @property
    def filled(self) -> frozenset[Buffer]:
        """Buffers that all but the last cluster fill, and others read besides."""
        return self.kept & self._filled_before

    @property
    def _filled_before(self) -> frozenset[Buffer]:
        return frozenset[Buffer]().union(*(each.whole.buffers for each in self.restricted[1:]))

    @property
    def between_bytes(self) -> int:
        """What a tile needs of them, those in the place of others left out."""
        replaced = self.replaced
        own = [b for b in self.between if b not in replaced or self.needs[b] != self.needs[replaced[b]]]
        return sum(prod(each.extent for each in self.needs[b]) * b.dtype.itemsize for b in own)

    @property
    def replaced(self) -> dict[Buffer, Buffer]:
        """Buffers whose rows may take the place of another one's: of those that no tile finds rows of."""
        if not any(each.whole.has_rows for each in self.restricted):
            return {}
        return rows_in_place([each.cluster for each in self.restricted[::-1]], self.between - self.moved)


def try_tiling(
    last: Cluster, tile: Mapping[int, int], steps: int = 1, kept: frozenset[Buffer] = frozenset()
) -> Tiling | None:
    """Tiles that take `tile[k]` of axis k of a cluster; None unless they divide it.

    So many of them along the last axis are run by one thread in turn, if what one has computed helps the next. `kept`
    are buffers that clusters before it fill and others read besides.
    """
    whole = last.unified
    tiles, shorter = _tiles(whole, tile)
    if not tiles or tiles[-1].extent % steps != 0:
        return None
    restricted = Restricted(whole, shorter)
    return Tiling(tuple(tiles), (restricted,), restricted.reads, steps, kept)


def try_fuse(
    clusters: Sequence[Cluster], tile: Mapping[int, int], steps: int = 1, kept: frozenset[Buffer] = frozenset()
) -> Fused | None:
    """The clusters as one kernel whose tiles take `tile[k]` of the last one's axis k; None if that cannot be done.

    All sizes must be numbers; what all but the last cluster fill must be filled by none besides, and read by none
    unless it is `kept`.
    """
    tiling = try_tiling(clusters[-1], tile, steps, kept)
    for cluster in reversed(clusters[:-1]):
        tiling = None if tiling is None else tiling.with_cluster(cluster)
    return None if tiling is None else _fused(tiling)


def _fused(tiling: Tiling) -> Fused | None:
    runs = list(tiling.runs())
    restricted = [each for each, _ in runs]
    places: dict[Buffer, _Place] = {}
    taken = {buffer.name for buffer in tiling.needs}
    taken |= {stage.buffer.name for each in restricted for stage in each.cluster.stages}
    for buffer in sorted(tiling.between, key=lambda buffer: buffer.name):
        place = _try_place(buffer, tiling.needs[buffer], restricted, tiling.tiles)
        if place is None:
            return None
        places[buffer] = replace(place, buffer=_renamed(place.buffer, taken))
        taken.add(places[buffer].buffer.name)
    members = tuple(
        Member(with_tiles_apart(_moved(each.cluster, places), tiling.tiles, tiling.filled), each.condition, phase)
        for each, phase in runs
    )
    alike = {new: old for new, old in tiling.replaced.items() if places[new].is_like(places[old])}
    in_place = {places[new].buffer: places[old].buffer for new, old in alike.items()}
    moved = tuple(_rows_moved(buffer, places[buffer], tiling) for buffer in places if buffer in tiling.moved)
    between = tuple(place.buffer for place in places.values())
    kept = tuple(sorted(tiling.filled, key=lambda buffer: buffer.name))
    return Fused(tiling.tiles, members, between, in_place, tiling.steps if moved else 1, moved, kept)


def _rows_moved(buffer: Buffer, place: _Place, tiling: Tiling) -> Moved:
    """What is left of a buffer's part for the next tile."""
    ranges, sym = tiling.needs[buffer], tiling.tiles[-1].sym
    new = new_rows(ranges, sym)
    assert new is not None
    first = ranges[new.dimension].start - place.starts[new.dimension]
    return Moved(place.buffer, new.dimension, Range(first, ranges[new.dimension].extent - new.count), new.count)


def is_static(cluster: Cluster) -> bool:
    """Whether all sizes of a cluster are numbers."""
    buffers = {load.source for load in cluster.loads if isinstance(load.source, Buffer)}
    buffers |= cluster.buffers
    axes = {axis for stage in cluster.stages for axis in (*stage.axes, *stage.reduction_axes)}
    sizes = [axis.extent for axis in axes] + [dim for buffer in buffers for dim in buffer.shape]
    return all(isinstance(size, int) for size in sizes)


def _tiles(last: Cluster, tile: Mapping[int, int]) -> tuple[list[Axis], dict[Sym, tuple[Axis, Dim]]]:
    """The loops over tiles, and for each axis that is tiled the one inside a tile and where that starts."""
    tiles: list[Axis] = []
    shorter: dict[Sym, tuple[Axis, Dim]] = {}
    for number, size in sorted(tile.items()):
        axis = last.stages[0].axes[number]
        if not isinstance(axis.extent, int) or axis.extent % size or number >= last.depth:
            return [], {}
        count = axis.extent // size
        sym = Sym(f"tile{number}", 0, count - 1)
        tiles.append(Axis(sym, count))
        shorter[axis.sym] = (Axis(Sym(axis.sym.name, 0, size - 1), size), sym * size)
    return tiles, shorter


def _is_visible(stage: TensorStage, cluster: Cluster) -> bool:
    """Whether a stage is the last of its cluster, or read by no other stage of it."""
    others = [other.body for other in cluster.stages if other is not stage]
    return all(load.source != stage.buffer for load in distinct_loads(others))


# --- where it is kept ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """The part of a buffer that a thread keeps, and which index of each dimension is its first."""

    buffer: Buffer
    starts: tuple[Dim, ...]

    def is_like(self, other: _Place) -> bool:
        return self.buffer.shape == other.buffer.shape and self.starts == other.starts


def _try_place(
    buffer: Buffer, needed: tuple[Range, ...], restricted: Sequence[Restricted], tiles: Sequence[Axis]
) -> _Place | None:
    """Room for what is needed and for what is computed besides; None if that depends on several loops over tiles."""
    starts: list[Dim] = []
    shape: list[int] = []
    writers = [(each, stage) for each in restricted for stage in each.cluster.stages if stage.buffer == buffer]
    for number, (range_, dim) in enumerate(zip(needed, buffer.shape, strict=True)):
        assert isinstance(dim, int)
        if range_.extent == dim:
            starts.append(0)
            shape.append(dim)
            continue
        low, high = 0, range_.extent
        for values in _tile_values(range_.start, tiles):
            if values is None:
                return None
            base = expr.substitute(range_.start, values)
            for each, stage in writers:
                if not _runs(each.condition, values):
                    continue
                first, last = _corner(stage, number, values)
                if first is None or last is None or not isinstance(base, int):
                    return None
                low, high = min(low, first - base), max(high, last + 1 - base)
        starts.append(range_.start + low)
        shape.append(high - low)
    return _Place(Buffer(f"{buffer.name}.near", buffer.dtype, tuple(shape)), tuple(starts))


def _renamed(buffer: Buffer, taken: Set[str]) -> Buffer:
    """The buffer under a name that no other has: a model may call its tensors anything."""
    name = buffer.name
    while name in taken:
        name += ".near"
    return replace(buffer, name=name)


def _tile_values(start: Dim, tiles: Sequence[Axis]) -> Iterator[dict[Sym, Dim] | None]:
    """Every value of the one loop over tiles that a start depends on; the others may have any."""
    moving = [axis for axis in tiles if axis.sym in expr.symbols(start)]
    if not moving:
        yield {}
        return
    if len(moving) != 1 or not isinstance(moving[0].extent, int) or moving[0].extent > MOST_TILES:
        yield None
        return
    for value in range(moving[0].extent):
        yield {moving[0].sym: value}


def _runs(condition: Scalar | None, values: Mapping[Sym, Dim]) -> bool:
    match condition:
        case Apply("and", (left, right)):
            return _runs(left, values) and _runs(right, values)
        case Apply(("lt" | "ge") as op, (Index(left), Index(right))):
            apart = expr.substitute(left, values) - expr.substitute(right, values)
            low, high = expr.bounds(apart)
            return (low is None or low < 0) if op == "lt" else (high is None or high >= 0)
        case _:
            return True


def _corner(stage: TensorStage, number: int, values: Mapping[Sym, Dim]) -> tuple[int | None, int | None]:
    """The least and greatest index of a dimension that a stage stores to."""
    return expr.bounds(expr.substitute(stage.place[number], values))


def _moved(cluster: Cluster, places: Mapping[Buffer, _Place]) -> Cluster:
    """The cluster with buffers between nests replaced by what a thread keeps of them."""

    def near(load: Load) -> Scalar:
        place = places.get(load.source) if isinstance(load.source, Buffer) else None
        if place is None:
            return load
        plain = [index for index in load.indices if isinstance(index, (int, expr.Expr))]
        indices = tuple(index - start for index, start in zip(plain, place.starts, strict=True))
        return Load(place.buffer, indices, load.dtype)

    stages: list[TensorStage] = []
    done: Done = {}
    for stage in cluster.stages:
        body, place = map_loads(stage.body, near, done), places.get(stage.buffer)
        if place is None:
            stages.append(replace(stage, body=body))
        else:
            where = tuple(index - start for index, start in zip(stage.place, place.starts, strict=True))
            stages.append(replace(stage, body=body, buffer=place.buffer, place=where))
    return Cluster(tuple(stages), cluster.depth)


def with_tiles_apart(cluster: Cluster, tiles: Sequence[Axis], filled: Set[Buffer] = frozenset()) -> Cluster:
    """Operands with the loop over tiles as a dimension of its own: what a tile reads of a constant can be packed.

    before: w[16*tile + i, k], w: [144, 24]      after: w[tile, i, k], w: [9, 16, 24]

    Those that the kernel itself has filled are left as they are.
    """
    own = cluster.buffers | filled
    seen: dict[Buffer, list[tuple[Dim | Scalar, ...]]] = {buffer: [] for buffer in own}
    for load in cluster.loads:
        assert isinstance(load.source, Buffer)
        if load.source not in own:
            seen.setdefault(load.source, []).append(load.indices)
    sizes = {
        buffer: [_size_apart(buffer, places, n, tiles) for n in range(len(buffer.shape))]
        for buffer, places in seen.items()
    }

    def apart(load: Load) -> Scalar:
        assert isinstance(load.source, Buffer)
        found = sizes[load.source]
        if not any(found):
            return load
        shape: list[Dim] = []
        indices: list[Dim | Scalar] = []
        for index, dim, size in zip(load.indices, load.source.shape, found, strict=True):
            if size and isinstance(index, (int, expr.Expr)):
                shape += [dim // size, size]
                indices += [index // size, index % size]
            else:
                shape.append(dim)
                indices.append(index)
        return Load(replace(load.source, shape=tuple(shape)), tuple(indices), load.dtype)

    if not any(any(found) for found in sizes.values()):
        return cluster
    done: Done = {}
    stages = tuple([replace(stage, body=map_loads(stage.body, apart, done)) for stage in cluster.stages])
    return Cluster(stages, cluster.depth)


def _size_apart(
    buffer: Buffer, places: Sequence[tuple[Dim | Scalar, ...]], number: int, tiles: Sequence[Axis]
) -> int | None:
    """What every access goes through of a dimension in one tile, if that is the same number of elements for each."""
    written = {axis.sym for axis in tiles}
    sizes: set[int | None] = set()
    for indices in places:
        index, dim = indices[number], buffer.shape[number]
        if not isinstance(index, (int, expr.Expr)) or not isinstance(dim, int):
            return None
        linear = expr.try_linear(index, frozenset(written))
        if linear is None or len(linear[0]) != 1:
            return None
        ((_, size),) = linear[0].items()
        low, high = expr.bounds(linear[1])
        is_inside = low is not None and high is not None and low >= 0 and high < size
        sizes.add(size if is_inside and dim % size == 0 and size < dim else None)
    return next(iter(sizes)) if len(sizes) == 1 else None
