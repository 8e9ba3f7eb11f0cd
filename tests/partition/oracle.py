"""The cheapest way to divide a small program into kernels: everything that may be fused, in every tile, is priced.

Tiles take any part that divides an axis, by itself or inside single iterations of one outside it; and every division of
the clusters into runs is compared. Prices are those of the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

from foretell.graph.nodes import Graph
from foretell.ir.tensor_expr import Buffer
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import Fused, is_static, try_fuse, try_tiling
from foretell.loops.lower import read_across
from foretell.partition.choose_groups import GroupChooser, most_between, steps_in_turn
from foretell.partition.group_cost import GroupCosts
from foretell.partition.nest_cost import NestCosts
from foretell.target.hardware_spec import HardwareSpec
from tests.fusing import clusters_of, kept_by, may_fuse

Run = tuple[int, int]
"""The numbers of its first cluster, and of the one after its last."""
Tile = tuple[tuple[int, int], ...]
"""Axes of the last cluster, and how much of each a tile takes."""


@dataclass(slots=True)
class Oracle:
    """Prices of all runs of a program's clusters."""

    clusters: Sequence[Cluster]
    kept: frozenset[Buffer]
    costs: GroupCosts
    alone: list[float] = field(default_factory=list)
    fused: dict[Run, dict[Tile, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, spec: HardwareSpec) -> Oracle:
        clusters, kept = clusters_of(graph, spec.vector_bytes // 4)
        stages = [stage for cluster in clusters for stage in cluster.stages]
        in_parts = frozenset(stage.buffer for stage in stages if not stage.is_whole)
        constants = frozenset(value.name for value in graph.constants)
        made = frozenset(stage.buffer for stage in stages)
        visible = kept | in_parts | read_across(clusters)
        found = cls(clusters, kept, GroupCosts(NestCosts(spec, constants), made, visible))
        found.alone = [
            found.costs.alone(cluster, number).seconds if is_static(cluster) else 0.0
            for number, cluster in enumerate(clusters)
        ]
        for first, last in combinations(range(len(clusters)), 2):
            if may_fuse(clusters, first, last + 1, kept):
                found.fused[first, last + 1] = dict(found._priced(first, last))
        return found

    def _priced(self, first: int, last: int) -> Iterator[tuple[Tile, float]]:
        for tile in tiles_of(self.clusters[last]):
            steps = steps_in_turn(self.clusters[last], dict(tile), self.costs.nests.spec.cores)
            tiling = try_tiling(self.clusters[last], dict(tile), steps, self._kept(first, last))
            for cluster in reversed(self.clusters[first:last]):
                tiling = None if tiling is None else tiling.with_cluster(cluster)
            if tiling is None or tiling.between_bytes > most_between(self.costs.nests.spec):
                continue
            ways = [self.costs.fused(replace(tiling, steps=n), lambda place: last - place) for n in {1, steps}]
            yield tile, min(way.seconds for way in ways)

    def cheapest(self, least_gain: float) -> float:
        """What the best of all divisions takes whose kernels each gain so much."""
        best = {run: min(tiles.values()) for run, tiles in self.fused.items() if tiles}
        gaining = {
            run: seconds for run, seconds in best.items() if seconds < (1 - least_gain) * sum(self.alone[slice(*run)])
        }
        return min(self._seconds(division, gaining) for division in divisions(len(self.clusters)))

    def _seconds(self, division: Sequence[Run], fused: Mapping[Run, float]) -> float:
        none = float("inf")
        return sum(self.alone[run[0]] if run[1] - run[0] == 1 else fused.get(run, none) for run in division)

    def chosen(self, spec: HardwareSpec) -> float:
        """What the division takes that a model would be compiled with."""
        chooser = GroupChooser(spec, self.costs.nests.constants)
        groups = chooser(self.clusters, self.kept)
        total, first = 0.0, 0
        for group in groups:
            length = self._length(group, first)
            run = first, first + length
            total += self.alone[first] if isinstance(group, Cluster) else self.fused[run][self._tile(group, run)]
            first += length
        assert first == len(self.clusters)
        return total

    def _length(self, group: Cluster | Fused, first: int) -> int:
        """How many clusters a group holds: those that make it when they are fused again."""
        if isinstance(group, Cluster):
            return 1
        last = group.members[-1].cluster.stages[-1].buffer
        ends = [n + 1 for n in range(first, len(self.clusters)) if self.clusters[n].stages[-1].buffer.name == last.name]
        return next(end - first for end in ends if self._is_same(group, (first, end)))

    def _is_same(self, group: Fused, run: Run) -> bool:
        tile = self._tile(group, run)
        kept = self._kept(run[0], run[1] - 1)
        return run[1] - run[0] > 1 and try_fuse(self.clusters[slice(*run)], dict(tile), group.steps, kept) == group

    def _kept(self, first: int, last: int) -> frozenset[Buffer]:
        return kept_by(self.clusters, first, last + 1, self.kept)

    def _tile(self, group: Fused, run: Run) -> Tile:
        axes = self.clusters[run[1] - 1].stages[0].axes
        numbers = [int(axis.sym.name.removeprefix("tile")) for axis in group.tiles]
        sizes = [
            int(str(axes[number].extent)) // int(str(tile.extent))
            for number, tile in zip(numbers, group.tiles, strict=True)
        ]
        return tuple(zip(numbers, sizes, strict=True))


def tiles_of(last: Cluster) -> Iterator[Tile]:
    """Sizes that divide an axis of a cluster, alone and inside single iterations of another one."""
    extents = [axis.extent for axis in last.stages[0].axes[: last.depth]]
    long = {number: extent for number, extent in enumerate(extents) if isinstance(extent, int) and extent > 1}
    for number, extent in long.items():
        for size in (size for size in range(1, extent) if extent % size == 0):
            yield ((number, size),)
            yield from (((outer, 1), (number, size)) for outer in long if outer < number)


def divisions(count: int) -> Iterator[list[Run]]:
    for chosen in range(1 << max(0, count - 1)):
        cuts = [number + 1 for number in range(count - 1) if chosen >> number & 1]
        yield list(pairwise([0, *cuts, count])) if count else []
