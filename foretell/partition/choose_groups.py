"""Which clusters become one kernel: the division of a program into runs that is predicted to take least.

Any run of clusters may be fused: several sums of products, what lies between them, joins and forks alike. Results that
clusters outside of the run read as well remain tensors, if each tile has a part of its own of them. What a run takes
fused is compared with what its clusters take alone, and the best division into runs is found by dynamic programming: it
is exact for the runs that are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Buffer
from foretell.loops.cluster import Cluster
from foretell.loops.fingerprint import Fingerprint, run_key
from foretell.loops.fuse import Fused, Tiling, is_static, try_fuse, try_tiling
from foretell.loops.lower import read_across
from foretell.loops.nodes import scalar_symbols
from foretell.partition.group_cost import GroupCost, GroupCosts
from foretell.partition.nest_cost import NestCost, NestCosts
from foretell.search.near_memory import second_cache_bytes
from foretell.target.hardware_spec import HardwareSpec

LONGEST_RUN = 12
"""Clusters of a kernel, borders of padded tensors included."""
BETWEEN_SHARE = 0.5
"""The part of the second cache that may be taken by what a thread keeps between the nests of a kernel."""
BETWEEN_BYTES = 1 << 20
"""The most that it keeps on its stack, whatever the cache."""
SIZES_TRIED = 3
"""Sizes of a tile that are looked at for each choice of axes, the greatest that fit."""
THINNING = 0.6
"""Sizes that are closer to each other are not told apart."""
NEARLY = 0.15
"""Choices of axes that take so much more than the best one are not looked at for longer runs."""
LEAST_SHARE = 0.002
"""The part of the program's time that a run must take besides computing, for fusing it to be looked at."""
LEAST_GAIN = 0.04
"""The part of the time that fusing must be predicted to save: the prediction is not better than that."""
LEAST_HOPE = 2 * LEAST_GAIN
"""The part of the time of a run that must not be computing, for fusing it to be looked at: twice what must be saved."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Clusters that are one kernel, or two neighbours that are not; and why. Seconds are of one core."""

    names: tuple[str, ...]
    is_fused: bool
    reason: str
    alone_s: float | None = None
    fused_s: float | None = None


@dataclass(slots=True)
class GroupChooser:
    """Call it with the clusters of a program; `decisions` tells what became of them."""

    spec: HardwareSpec
    constants: frozenset[str]
    decisions: list[Decision] = field(default_factory=list)
    drafts: dict[str, float] = field(default_factory=dict)
    """Seconds that each kernel should take on one core, by what it is called; not of those that share a name."""

    def __call__(self, clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> list[Cluster | Fused]:
        """The clusters in order, those that are fused as one."""
        program = _Program.of(clusters, kept, self.spec, self.constants)
        looked_at: dict[tuple[int, int], _Tiled] = {}
        for last in range(len(clusters)):
            looked_at |= program.grown(last)
        runs = program.divided(looked_at)
        self.decisions += program.decisions(runs, looked_at)
        self.drafts |= program.drafts(runs, looked_at)
        groups: list[Cluster | Fused] = []
        for first, last in runs:
            tiled = None if first == last else looked_at[first, last]
            run = clusters[first : last + 1]
            fused = tiled and try_fuse(run, tiled.tile, tiled.steps, program.users.kept(run, last))
            groups += run if fused is None else [fused]
        return groups


@dataclass(frozen=True, slots=True)
class _Users:
    """Who writes to buffers, and who reads them: clusters by their numbers."""

    writers: tuple[int, ...]
    """For each cluster, the first that writes to the same buffers."""
    readers: tuple[int | None, ...]
    """The last that reads them, if any other does."""
    ends: Mapping[Buffer, int]
    """The last that reads a buffer; of those that are read in the end, one after all."""
    parts: frozenset[Buffer]
    """Buffers that several stages fill, or one from somewhere on."""

    @classmethod
    def of(cls, clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> _Users:
        writer: dict[Buffer, int] = {}
        reader: dict[Buffer, int] = {}
        for number, cluster in enumerate(clusters):
            for stage in cluster.stages:
                writer.setdefault(stage.buffer, number)
            for load in cluster.loads:
                if isinstance(load.source, Buffer):
                    reader[load.source] = number
        lasts = [max(reader.get(b, number) for b in cluster.buffers) for number, cluster in enumerate(clusters)]
        readers = tuple(last if last != number else None for number, last in enumerate(lasts))
        writers = tuple(min(writer[b] for b in cluster.buffers) for cluster in clusters)
        ends = {b: len(clusters) if b in kept else reader.get(b, number) for b, number in writer.items()}
        stages = [stage for cluster in clusters for stage in cluster.stages]
        count = Counter(stage.buffer for stage in stages)
        parts = frozenset(stage.buffer for stage in stages if not stage.is_whole or count[stage.buffer] > 1)
        return cls(writers, readers, ends, parts)

    def kept(self, run: Sequence[Cluster], last: int) -> frozenset[Buffer]:
        """What clusters of a run fill before its last one, the cluster of that number, and others read later."""
        return frozenset(buffer for cluster in run[:-1] for buffer in cluster.buffers if self.ends[buffer] > last)


@dataclass(frozen=True, slots=True)
class _Tiled:
    """Tiles along axes of the last cluster of a run, and what the run takes so."""

    tile: Mapping[int, int]
    steps: int
    """Tiles that a thread runs in turn."""
    cost: GroupCost

    @property
    def seconds(self) -> float:
        return self.cost.seconds


@dataclass(slots=True)
class _Grown:
    """Runs that end with one cluster."""

    runs: dict[int, _Tiled] = field(default_factory=dict)
    """By how many clusters they have before it."""
    length: int = 0
    """How many clusters before it were looked at."""
    has_ended: bool = False
    """Whether no others need to be, if there are any."""


@dataclass(frozen=True, slots=True)
class _Program:
    """The clusters of a program, what each takes alone, and which runs of them were looked at."""

    clusters: Sequence[Cluster]
    users: _Users
    costs: GroupCosts
    alone: Sequence[GroupCost | None]
    """None where sizes are not known: such a cluster is never fused."""
    fingerprints: Sequence[Fingerprint | None]
    keys: Sequence[object]
    """Equal for clusters that do the same."""
    classes: tuple[frozenset[Buffer], ...]
    known: dict[object, _Grown] = field(default_factory=dict)

    @classmethod
    def of(
        cls, clusters: Sequence[Cluster], kept: frozenset[Buffer], spec: HardwareSpec, constants: frozenset[str]
    ) -> _Program:
        made = frozenset(stage.buffer for cluster in clusters for stage in cluster.stages)
        in_parts = frozenset(stage.buffer for c in clusters for stage in c.stages if not stage.is_whole)
        visible = kept | in_parts | read_across(clusters)
        costs = GroupCosts(NestCosts(spec, constants), made, visible)
        prints = [cluster.fingerprint if is_static(cluster) else None for cluster in clusters]
        never_change = frozenset(b for each in prints if each for b in each.buffers if b.name in constants)
        classes = (made, visible, never_change)
        found: dict[object, GroupCost] = {}
        alone: list[GroupCost | None] = []
        keys = [None if each is None else run_key([each], classes) for each in prints]
        for cluster, key in zip(clusters, keys, strict=True):
            if key is not None and key not in found:
                found[key] = costs.alone(cluster, key)
            alone.append(None if key is None else found[key])
        return cls(clusters, _Users.of(clusters, kept), costs, alone, prints, keys, classes)

    def grown(self, last: int) -> dict[tuple[int, int], _Tiled]:
        """Kernels that end with one cluster, each with one more before it, as long as that gains something."""
        furthest = last
        while furthest > max(0, last - LONGEST_RUN + 1) and self._may_join(furthest - 1, last):
            furthest -= 1
        if furthest == last or self.alone[last] is None:
            return {}
        found = self._try_known(furthest, last)
        if found is None:
            found = _Grown()
            self._grow(found, furthest, last)
            self.known[self._key(last - found.length, last)] = found
        return {(last - length, last): tiled for length, tiled in found.runs.items()}

    def _try_known(self, furthest: int, last: int) -> _Grown | None:
        """What was found for clusters that do the same, as far as it depends on them."""
        for first in range(last - 1, furthest - 1, -1):
            found = self.known.get(self._key(first, last))
            if found is not None and (found.has_ended or first == furthest):
                return found
        return None

    def _key(self, first: int, last: int) -> object:
        prints = [each for each in self.fingerprints[first : last + 1] if each is not None]
        writers = tuple(last - writer for writer in self.users.writers[first:last])
        kept = self.users.kept(self.clusters[first : last + 1], last)
        return run_key(prints, (*self.classes, kept)), writers

    def _may_join(self, number: int, last: int) -> bool:
        """Whether what a cluster fills is read by clusters up to the last one alone, or may remain a tensor.

        For a tensor that remains, only reading it can be saved, and a barrier: often too little to be looked at.
        """
        if self.alone[number] is None:
            return False
        least_s = LEAST_SHARE * self._seconds_alone(0, len(self.clusters) - 1)
        escaping = [buffer for buffer in self.clusters[number].buffers if self.users.ends[buffer] > last]
        return all(b not in self.users.parts and self.costs.passing_s(b) >= least_s for b in escaping)

    def _grow(self, grown: _Grown, furthest: int, last: int) -> None:
        """Look at runs that end with a cluster, the shortest first."""
        choices: list[_Sizes] | None = None
        start, gains, least = last, [0.0], self._compute(last)
        whole = self._seconds_alone(0, len(self.clusters) - 1)
        for first in range(last - 1, furthest - 1, -1):
            grown.length = last - first
            start, least = min(start, self.users.writers[first]), least + self._compute(first)
            before = self._seconds_alone(first, last)
            if start < first or before - least < max(LEAST_HOPE * before, LEAST_SHARE * whole):
                continue
            run = self.clusters[first : last + 1]
            if choices is None:
                kept = self.users.kept(self.clusters[furthest : last + 1], last)
                choices = list(_choices(self.clusters[last], self.costs.nests.spec, kept))
            found = [
                (self._tiled(tile, tiling, last), number)
                for number, sizes in enumerate(choices)
                for tile, tiling in sizes.fitting(run)
            ]
            if not found:
                grown.has_ended = True
                return
            best = min((tiled for tiled, _ in found), key=lambda each: each.seconds)
            near = {number for each, number in found if each.seconds <= (1 + NEARLY) * best.seconds}
            choices = [choices[number] for number in sorted(near)]
            gains.append(before - best.seconds)
            grown.runs[last - first] = best
            if _has_ended(gains):
                grown.has_ended = True
                return

    def _tiled(self, tile: Mapping[int, int], tiling: Tiling, last: int) -> _Tiled:
        """Tiles by themselves, or several in turn where the next finds what one has computed: what takes less."""

        def key(place: int) -> object:
            return self.keys[last - place]

        known: dict[int, NestCost] = {}
        alone = _Tiled(tile, 1, self.costs.fused(replace(tiling, steps=1), key, known))
        if not tiling.moved:
            return alone
        in_turn = _Tiled(tile, tiling.steps, self.costs.fused(tiling, key, known))
        return min(in_turn, alone, key=lambda each: each.seconds)

    def _compute(self, number: int) -> float:
        alone = self.alone[number]
        return 0.0 if alone is None else alone.compute_s

    def divided(self, looked_at: Mapping[tuple[int, int], _Tiled]) -> list[tuple[int, int]]:
        """The first and last clusters of the runs of the cheapest division; those count that clearly gain."""
        alone = [self._seconds_alone(number, number) for number in range(len(self.clusters))]
        gaining = {
            (first, last + 1): tiled.seconds
            for (first, last), tiled in looked_at.items()
            if tiled.seconds < (1 - LEAST_GAIN) * self._seconds_alone(first, last)
        }
        return [(first, end - 1) for first, end in cheapest_division(alone, gaining)]

    def _seconds_alone(self, first: int, last: int) -> float:
        return sum(cost.seconds for cost in self.alone[first : last + 1] if cost is not None)

    def drafts(
        self, runs: Sequence[tuple[int, int]], looked_at: Mapping[tuple[int, int], _Tiled]
    ) -> Iterator[tuple[str, float]]:
        """What kernels are called, and what they should take on one core; borders of a tensor share its name."""
        names = Counter(self._name(last) for _, last in runs)
        for first, last in runs:
            cost = self.alone[first] if first == last else looked_at[first, last].cost
            if cost is not None and names[self._name(last)] == 1:
                yield self._name(last), cost.one_core_s

    def decisions(
        self, runs: Sequence[tuple[int, int]], looked_at: Mapping[tuple[int, int], _Tiled]
    ) -> Iterator[Decision]:
        """Why runs are one kernel, and why a cluster and the last one that reads it are not."""
        home = {number: run for run in runs for number in range(run[0], run[1] + 1)}
        for first, last in runs:
            if first < last:
                names = tuple(self._name(number) for number in range(first, last + 1))
                tiled = looked_at[first, last]
                tile = ", ".join(f"{size} of axis {axis}" for axis, size in tiled.tile.items())
                alone_s = self._seconds_alone(first, last)
                yield Decision(tuple(dict.fromkeys(names)), True, f"in tiles of {tile}", alone_s, tiled.seconds)
        for number, last in enumerate(self.users.readers):
            if last is not None and home[number] != home[last]:
                yield self._declined(number, last, looked_at.get((number, last)))

    def _declined(self, number: int, last: int, tiled: _Tiled | None) -> Decision:
        names = self._name(number), self._name(last)
        if self.alone[number] is None or self.alone[last] is None:
            return Decision(names, False, "sizes are not known")
        if last - number >= LONGEST_RUN:
            return Decision(names, False, "they lie far apart")
        if tiled is None:
            return Decision(names, False, "no tile keeps little between them, or nothing is waited for")
        alone_s = self._seconds_alone(number, last)
        return Decision(names, False, "other kernels take less", alone_s, tiled.seconds)

    def _name(self, number: int) -> str:
        return self.clusters[number].stages[-1].buffer.name


def cheapest_division(alone: Sequence[float], runs: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Where runs begin and end that take least together, for what each of their members takes alone.

    best[n] is what the first n take, and where the last of their runs begins.
    """
    ending: dict[int, list[tuple[int, float]]] = {}
    for (first, end), cost in runs.items():
        ending.setdefault(end, []).append((first, cost))
    best: list[tuple[float, int]] = [(0.0, 0)]
    for last, cost in enumerate(alone):
        candidates = [(last, cost), *ending.get(last + 1, ())]
        best.append(min((best[first][0] + cost, first) for first, cost in candidates))
    ends = [len(alone)]
    while ends[-1]:
        ends.append(best[ends[-1]][1])
    return list(pairwise(reversed(ends)))


def _has_ended(gains: Sequence[float]) -> bool:
    """Whether the last two runs gained less than the best, or the last one lost what a shorter one gained."""
    has_lost = gains[-1] < 0 < max(gains)
    return has_lost or (len(gains) > 2 and max(gains[-2:]) < max(gains[:-2]))


@dataclass(slots=True)
class _Sizes:
    """Tiles along axes of the last cluster of a run: the greatest few that leave little between its nests."""

    axes: tuple[int, ...]
    sizes: Iterator[int]
    """Of the last axis, those not yet tried, the greatest first; the others are cut into single iterations."""
    most_bytes: float
    """What may be kept between the nests."""
    cores: int
    kept: frozenset[Buffer]
    """Buffers that others read besides."""
    _fitting: list[tuple[dict[int, int], Tiling]] = field(default_factory=list)
    _length: int = 1
    """Clusters that they are extended to."""

    def fitting(self, run: Sequence[Cluster]) -> list[tuple[dict[int, int], Tiling]]:
        """For a run that ends with the same clusters as those before."""
        added = run[: len(run) - self._length]
        self._length = len(run)
        extended = [(tile, self._extended(tiling, added)) for tile, tiling in self._fitting]
        self._fitting = [(tile, tiling) for tile, tiling in extended if tiling is not None and self._fits(tiling)]
        while len(self._fitting) < SIZES_TRIED and (size := next(self.sizes, None)) is not None:
            tile = {**dict.fromkeys(self.axes[:-1], 1), self.axes[-1]: size}
            steps = steps_in_turn(run[-1], tile, self.cores)
            tiling = self._extended(try_tiling(run[-1], tile, steps, self.kept), run[:-1])
            if tiling is None:
                self.sizes = iter(())
            elif self._fits(tiling):
                self._fitting.append((tile, tiling))
        return self._fitting

    def _fits(self, tiling: Tiling) -> bool:
        return tiling.between_bytes <= self.most_bytes

    def _extended(self, tiling: Tiling | None, clusters: Sequence[Cluster]) -> Tiling | None:
        """A tiling with clusters before it, as far as it fits; None if it cannot have them, whatever its size."""
        for cluster in reversed(clusters):
            tiling = None if tiling is None else tiling.with_cluster(cluster)
            if tiling is None or not self._fits(tiling):
                return tiling
        return tiling


def most_between(spec: HardwareSpec) -> float:
    """Bytes that a thread may keep between the nests of a kernel."""
    return min(BETWEEN_BYTES, BETWEEN_SHARE * second_cache_bytes(spec))


def _choices(last: Cluster, spec: HardwareSpec, kept: frozenset[Buffer]) -> Iterator[_Sizes]:
    """Each axis of a cluster, or each inside iterations of the first that have nothing in common."""
    cores, most_bytes = spec.cores, most_between(spec)
    extents = [axis.extent for axis in last.stages[0].axes[: last.depth]]
    long = [number for number, extent in enumerate(extents) if isinstance(extent, int) and extent > 1]
    for number in long:
        yield _Sizes((number,), iter(_sizes(extents[number], cores)), most_bytes, cores, kept)
    for number in long[1:]:
        if _is_batch(last, long[0]):
            sizes = iter(_sizes(extents[number], cores, extents[long[0]]))
            yield _Sizes((long[0], number), sizes, most_bytes, cores, kept)


def steps_in_turn(last: Cluster, tile: Mapping[int, int], cores: int) -> int:
    """Tiles along the last axis that a thread may run in turn: the most that divide them and leave no core idle."""
    extents = [last.stages[0].axes[number].extent for number in tile]
    counts = [extent // size for extent, size in zip(extents, tile.values(), strict=True) if isinstance(extent, int)]
    tasks = min(cores, prod(counts))
    return max(n for n in range(1, counts[-1] + 1) if counts[-1] % n == 0 and prod(counts) // n >= tasks)


def _is_batch(cluster: Cluster, number: int) -> bool:
    """Whether every operand of more than one element depends on an axis."""
    for stage in cluster.stages:
        sym = stage.axes[number].sym
        for load in stage.loads:
            if load.indices and sym not in scalar_symbols(load):
                return False
    return True


def _sizes(extent: Dim, cores: int, outer: Dim = 1) -> list[int]:
    """Sizes that divide an axis, the greatest first, each at most about half of the one before.

    Those count whose tiles keep half of the cores busy, if any can; of sizes near each other, the one that keeps more.
    """
    assert isinstance(extent, int) and isinstance(outer, int)
    idle: dict[int, float] = {}
    for size in range(extent // 2, 0, -1):
        tiles = outer * extent // size
        if extent % size == 0 and 2 * tiles >= min(cores, outer * extent):
            idle[size] = -(-tiles // cores) / tiles
    sizes: list[int] = []
    for size in idle:
        is_near = sizes and size > THINNING * sizes[-1]
        if not is_near and all(idle[size] <= idle[other] for other in idle if THINNING * size <= other < size):
            sizes.append(size)
    return sizes
