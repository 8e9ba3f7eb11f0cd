"""Ways to fuse the clusters of a graph that no prediction decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from foretell.graph.interpret import evaluate_dim
from foretell.graph.nodes import Array, Graph
from foretell.ir.tensor_expr import Buffer
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import Fused, is_static, try_fuse
from foretell.loops.interpret import interpret
from foretell.loops.lower import Fusion
from foretell.loops.lower_graph import NativeStep, lower_graph
from foretell.loops.nodes import Kernel, distinct_loads
from foretell.loops.verify import verify
from tests.loops.kernels import symbols_of

Groups: TypeAlias = Sequence[Cluster | Fused]
Chooser: TypeAlias = Callable[[Sequence[Cluster], frozenset[Buffer]], Groups]


@dataclass(slots=True)
class NoGroups:
    """Fuses nothing, and remembers what it was asked about."""

    asked: list[tuple[Sequence[Cluster], frozenset[Buffer]]] = field(default_factory=list)

    def __call__(self, clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> Groups:
        self.asked.append((clusters, kept))
        return clusters


@dataclass(slots=True)
class RandomGroups:
    """Fuses runs as long as can be, into tiles of any size that divides."""

    random: Random
    fused: list[Fused] = field(default_factory=list)

    def __call__(self, clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> Groups:
        groups: list[Cluster | Fused] = []
        end = len(clusters)
        while end:
            first, group = self._longest(clusters, end, kept)
            groups.append(group)
            end = first
        self.fused += [group for group in groups if isinstance(group, Fused)]
        return groups[::-1]

    def _longest(self, clusters: Sequence[Cluster], end: int, kept: frozenset[Buffer]) -> tuple[int, Cluster | Fused]:
        last = clusters[end - 1]
        if is_static(last):
            for first in range(end - 1):
                if may_fuse(clusters, first, end, kept):
                    for tile in [random_tile(last, self.random) for _ in range(3)]:
                        others = kept_by(clusters, first, end, kept)
                        fused = try_fuse(clusters[first:end], tile, self._steps(last, tile), others)
                        if fused is not None:
                            return first, fused
        return end - 1, last

    def _steps(self, last: Cluster, tile: dict[int, int]) -> int:
        number = max(tile)
        count = int(str(last.stages[0].axes[number].extent)) // tile[number]
        return self.random.choice([steps for steps in range(1, count + 1) if count % steps == 0])


def random_tile(last: Cluster, random: Random) -> dict[int, int]:
    """Some of a cluster's axes, each with a size that divides it."""
    extents = {n: axis.extent for n, axis in enumerate(last.stages[0].axes[: last.depth])}
    chosen = [n for n in extents if random.random() < 0.5] or list(extents)[:1]
    sizes = {n: [s for s in range(1, int(str(extents[n])) + 1) if int(str(extents[n])) % s == 0] for n in chosen}
    return {n: random.choice(some) for n, some in sizes.items()}


def may_fuse(clusters: Sequence[Cluster], first: int, end: int, kept: frozenset[Buffer]) -> bool:
    """Whether nobody outside a run fills what its clusters fill, all but the last, or reads parts of it."""
    run = clusters[first:end]
    hidden = filled(run[:-1]) - filled(run[-1:])
    outside = [*clusters[:first], *clusters[end:]]
    is_hidden = not hidden & filled(outside) and not kept_by(clusters, first, end, kept) & in_parts(run)
    return is_hidden and all(map(is_static, run))


def kept_by(clusters: Sequence[Cluster], first: int, end: int, kept: frozenset[Buffer]) -> frozenset[Buffer]:
    """What the clusters of a run fill, all but the last, and others read."""
    return frozenset(filled(clusters[first : end - 1]) & (kept | read(clusters[end:])))


def in_parts(clusters: Sequence[Cluster]) -> set[Buffer]:
    stages = [stage for cluster in clusters for stage in cluster.stages]
    count = Counter(stage.buffer for stage in stages)
    return {stage.buffer for stage in stages if not stage.is_whole or count[stage.buffer] > 1}


def filled(clusters: Sequence[Cluster]) -> set[Buffer]:
    return {stage.buffer for cluster in clusters for stage in cluster.stages}


def read(clusters: Sequence[Cluster]) -> set[Buffer]:
    loads = distinct_loads([stage.body for cluster in clusters for stage in cluster.stages])
    return {load.source for load in loads if isinstance(load.source, Buffer)}


def clusters_of(graph: Graph, lanes: int = 8) -> tuple[Sequence[Cluster], frozenset[Buffer]]:
    """What a chooser is asked about a graph whose nodes all have definitions, and the buffers that others read."""
    groups = NoGroups()
    lower_graph(graph, lambda node: True, lanes, None, Fusion(groups, lambda kernel: None))
    return groups.asked[0] if groups.asked else ((), frozenset())


def kernels_with(groups: Chooser, graph: Graph, lanes: int = 8) -> list[Kernel]:
    """The kernels of such a graph, all valid."""
    steps = lower_graph(graph, lambda node: True, lanes, None, Fusion(groups, lambda kernel: None))
    kernels = [kernel for step in steps if isinstance(step, NativeStep) for kernel in step.kernels]
    for kernel in kernels:
        verify(kernel)
    return kernels


def interpreted(kernels: Sequence[Kernel], graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """The graph's outputs."""
    given = {value.name: array for value, array in graph.constants.items()} | feeds
    symbols = symbols_of(graph, feeds)
    memory = interpret(kernels, given, symbols)
    return [memory[v.name].reshape([evaluate_dim(dim, symbols) for dim in v.type.shape]) for v in graph.outputs]
